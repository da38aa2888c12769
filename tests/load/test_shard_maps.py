"""Shards that rows are read from: mapped when needed, few at once, each block checked once."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xxhash
from loading_kit import all_batches, as_lists, digits, plan_of, write_tokenizer

import tokenmill
from tokenmill import Dataset
from tokenmill.core.errors import VerificationError
from tokenmill.load.batches import Batches
from tokenmill.load.columns import MaskedLM
from tokenmill.load.opening import mix_batches, open_batches
from tokenmill.load.rows import shard_maps
from tokenmill.load.rows.reader import RowReader
from tokenmill.load.rows.shard_maps import ShardMaps
from tokenmill.load.steps.curriculum import Curriculum, Phase
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.read import units
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.plan import Plan

LENGTH = 2000
"""Tokens of each of the large documents, of two bytes each."""
NUM_LARGE = 100


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """One shard, whose tokens fill six blocks and a bit."""
    texts = [str(1 + number % 9) * (LENGTH - 1) for number in range(NUM_LARGE)]
    dataset = digits(tmp_path_factory.mktemp("large"), texts)
    assert len(dataset.shards) == 1
    assert len(dataset.shards[0].block_digests) == 7 + 1
    return dataset


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Several shards of short documents."""
    folder = tmp_path_factory.mktemp("many")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 1 << 10)
        patch.setattr(units, "PIECE_BYTES", 1 << 10)
        texts = [str(1 + number % 9) * (1 + number % 30) for number in range(300)]
        dataset = digits(folder, texts, write_tokenizer(folder / "tokenizer.json"))
    assert len(dataset.shards) >= 5
    return dataset


@pytest.fixture(scope="module")
def of_large(large: Dataset, folders: Iterable[Path]) -> Plan:
    """Sequence i is document i."""
    sequences = [[(number, 0, LENGTH)] for number in range(NUM_LARGE)]
    return plan_of(next(iter(folders)), large, sequences, sequence_length=LENGTH)


@pytest.fixture(scope="module")
def of_many(many: Dataset) -> Plan:
    """Sequences of documents of all shards."""
    made_of = {"sequence_length": 32, "window": "global"}
    return tokenmill.pack(many, **made_of).plan


Checked = list[int]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    """The sizes of blocks whose digests have been taken."""
    sizes: Checked = []

    def digest(data: bytes) -> int:
        sizes.append(len(data))
        return xxhash.xxh3_64_intdigest(data)

    monkeypatch.setattr(shard_maps, "xxhash", SimpleNamespace(xxh3_64_intdigest=digest))
    return sizes


def read(reader: RowReader, *sequences: int) -> list[list[int]]:
    rows = reader.read(np.array(sequences), reader.plan.rows.row_lengths[0])
    found: list[list[int]] = rows.ids.tolist()
    return found


# Blocks.


def test_a_block_is_checked_when_it_is_first_touched(
    large: Dataset, of_large: Plan, checked: Checked
) -> None:
    """Document 16 lies across the border of the first two blocks."""
    reader = RowReader(Dataset(large.folder), of_large)
    assert checked == []
    index_bytes = large.shards[0].path("idx").stat().st_size
    for sequences, new in [
        ([0], [index_bytes, BLOCK_BYTES]),
        ([0], []),
        ([3, 0, 2], []),
        ([16], [BLOCK_BYTES]),
        ([16, 15, 17], []),
        ([50, 51], [BLOCK_BYTES]),
        ([99, 98], [BLOCK_BYTES, NUM_LARGE * LENGTH * 2 - 6 * BLOCK_BYTES]),
    ]:
        checked.clear()
        read(reader, *sequences)
        assert checked == new


def test_part_of_a_document_touches_its_blocks_only(
    large: Dataset, folders: Iterable[Path], checked: Checked
) -> None:
    """Token 768 of document 16 is the first of the second block."""
    sequences = [[(16, 0, 700)], [(16, 760, 7)], [(16, 760, 8)], [(16, 768, 1)]]
    plan = plan_of(next(iter(folders)), large, sequences, sequence_length=LENGTH)
    reader = RowReader(Dataset(large.folder), plan)
    found = []
    for number in range(4):
        checked.clear()
        read(reader, number)
        found.append(len(checked))
    # A label may be the token after the segment, which is read and so checked, too.
    assert found == [2, 0, 1, 0]


# Shards.


def mapped(maps: ShardMaps) -> list[int]:
    return np.flatnonzero(maps.table[:, 0]).tolist()


def test_shards_that_were_used_longest_ago_are_unmapped(
    many: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_maps, "MOST_MAPPED", 2)
    maps = ShardMaps(Dataset(many.folder))
    for shards, expected in [
        ([0], [0]),
        ([1], [0, 1]),
        ([0], [0, 1]),
        ([2], [0, 2]),
        ([0], [0, 2]),
        ([1], [0, 1]),
        ([4, 3], [3, 4]),
        ([2, 0, 1], [0, 1, 2]),  # all that are needed together
        ([2], [0, 1, 2]),
        ([4], [2, 4]),
    ]:
        maps.require(np.array(shards))
        assert mapped(maps) == expected


def test_mapped_shards_keep_no_file_open(many: Dataset, of_many: Plan) -> None:
    dataset = Dataset(many.folder)
    reader = RowReader(dataset, of_many)
    before = len(list(Path("/proc/self/fd").iterdir()))
    read(reader, *range(len(of_many)))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("part", ["bin", "idx"])
def test_a_file_of_another_size_is_refused(part: str, many: Dataset, tmp_path: Path) -> None:
    shutil.copytree(many.folder, tmp_path / "copy")
    dataset = Dataset(tmp_path / "copy")
    maps = ShardMaps(dataset)
    path = dataset.shards[1].path(part)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(VerificationError) as caught:
        maps.require(np.array([0, 1]))
    assert caught.value.where == str(path)
    assert mapped(maps) == [0]


# Other processes.


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


ALL_OPTIONS: dict[str, Any] = {
    "columns": ("input_ids", "labels", "position_ids", "cu_seqlens", "loss_weights"),
    "labels": "next",
    "positions": "document",
    "loss_weights": "document",
    "masked_lm": MaskedLM(mask_id=11, vocab_size=12, keep=(0,)),
    "seed": 3,
}


def of_a_plan(dataset: Dataset, plan: Plan) -> Batches:
    return open_batches(dataset, plan, batch_size=4, epochs=2, **ALL_OPTIONS)


def of_a_rank(dataset: Dataset, plan: Plan) -> Batches:
    ranks = {"rank": 1, "world_size": 2}
    return open_batches(dataset, plan, global_batch_size=6, **ranks, **ALL_OPTIONS)


def of_a_mixture(dataset: Dataset, plan: Plan) -> Batches:
    sources = [MixtureSource(dataset=dataset, plan=plan, share=share) for share in (1, 2)]
    return mix_batches(sources, batch_size=4, **ALL_OPTIONS)


def of_a_curriculum(dataset: Dataset, plan: Plan) -> Batches:
    phases = Phase(by="length", row_length=8), Phase(first_step=3)
    curriculum = Curriculum.of_plan(plan, dataset, 4, phases)
    return open_batches(dataset, plan, curriculum=curriculum, **ALL_OPTIONS)


KINDS = [of_a_plan, of_a_rank, of_a_mixture, of_a_curriculum]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_that_were_sent_elsewhere_go_on_where_they_were(
    kind: Callable[[Dataset, Plan], Batches], many: Dataset, of_many: Plan
) -> None:
    expected = list(map(as_lists, all_batches(kind(many, of_many))))
    assert len(expected) > 5
    running = kind(many, of_many)
    assert list(map(as_lists, all_batches(again(running)))) == expected
    iterator = iter(running)
    for _ in range(4):
        next(iterator)
    sent = again(running)
    assert sent.step == 4
    assert [as_lists(batch) for batch in sent] == expected[4:]
    assert [as_lists(batch) for batch in iterator] == expected[4:]

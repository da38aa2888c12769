"""Datasets and plans that lie: an error, never a read outside of a file.

Compiled code reads mapped files by address, so a number that is believed kills the process, or
trains on foreign memory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from loading_kit import all_batches, digits

import tokenmill
from packing_kit import reseal_plan
from tokenmill import Dataset
from tokenmill.core.errors import VerificationError
from tokenmill.load.rows import shard_maps
from tokenmill.load.rows.shard_maps import ShardMaps, index_is_sound
from tokenmill.packing.planning import figures_of
from tokenmill.packing.strategies import options_of_plan
from tokenmill.read import units
from tokenmill.store.arrays import ArrayFile
from tokenmill.store.canonical import canonical_json, write_sealed
from tokenmill.store.digests import block_digests, file_digest
from tokenmill.store.layout import HEADER, pack_index, unpack_index
from tokenmill.store.manifest import dataset_id, read_manifest
from tokenmill.store.plan import ARRAYS, PlanManifest, open_plan

FIRST_TABLE = "documents/00000000-000000.parquet"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Three hundred documents in several shards, with the plan `a` of rows of 32."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 1 << 10)
        patch.setattr(units, "PIECE_BYTES", 1 << 10)
        dataset = digits(folder, [str(1 + i % 9) * (1 + i % 30) for i in range(300)])
    assert len(dataset.shards) >= 4
    tokenmill.pack(dataset, name="a", sequence_length=32)
    return dataset


@pytest.fixture
def copied(whole: Dataset, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole.folder, tmp_path / "copy"))


def rewrite_array(folder: Path, name: str, change: Callable[[np.ndarray], None]) -> None:
    path = folder / "plans" / "a" / f"{name}.npy"
    values = np.load(path)
    change(values)
    path.unlink()
    file = ArrayFile(path, values.dtype.str)
    file.append(values)
    file.finish()
    reseal_plan(path.parent)


def negative_offsets(values: np.ndarray) -> None:
    values[2:-1:2] = -(1 << 40)


def huge_offsets(values: np.ndarray) -> None:
    values[2:-1:2] = 1 << 40


@pytest.mark.parametrize("change", [negative_offsets, huge_offsets])
@pytest.mark.parametrize("world_size", [1, 2])
def test_offsets_of_a_plan_are_checked_before_costs_are_summed(
    change: Callable[[np.ndarray], None], world_size: int, copied: Path
) -> None:
    rewrite_array(copied, "offsets", change)
    batches = tokenmill.open(copied).batches(
        "a", global_batch_size=8, rank=0, world_size=world_size
    )
    with pytest.raises(VerificationError, match="its offsets are out of order"):
        all_batches(batches)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("documents", 2**32 - 1, "it names documents that do not exist"),
        ("starts", 2**32 - 1, "a segment reaches outside its document"),
        ("lengths", 2**32 - 1, "a segment reaches outside its document"),
        ("lengths", 0, "a segment has no token"),
    ],
)
def test_segments_stay_inside_their_documents(
    name: str, value: int, why: str, copied: Path
) -> None:
    def change(values: np.ndarray) -> None:
        values[7] = value

    rewrite_array(copied, name, change)
    with pytest.raises(VerificationError, match=why):
        all_batches(tokenmill.open(copied).batches("a", batch_size=4))


@pytest.mark.parametrize("name", ARRAYS)
def test_no_flipped_bit_of_a_plan_gives_batches(name: str, copied: Path) -> None:
    path = copied / "plans" / "a" / f"{name}.npy"
    data = path.read_bytes()
    for place in range(0, 8 * len(data), 1009):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(VerificationError, match="a plan is damaged"):
            tokenmill.open(copied).batches("a", batch_size=4)


def test_readers_of_one_dataset_do_not_unmap_each_others_files(
    whole: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_maps, "MOST_MAPPED", 1)
    dataset = tokenmill.open(whole.folder)
    expected = [
        batch["input_ids"].tolist() for batch in all_batches(whole.batches("a", batch_size=2))
    ]
    one, other = (dataset.batches("a", batch_size=2) for _ in range(2))
    for step, ids in enumerate(expected):
        assert one.batch(step)["input_ids"].tolist() == ids
        assert other.batch(len(expected) - 1 - step)["input_ids"].tolist() == expected[-1 - step]


def test_a_block_whose_check_could_not_be_made_is_checked_again(
    whole: Dataset, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (copied / "tokens").glob("*.bin"):
        path.write_bytes(bytes(path.stat().st_size))
    batches = tokenmill.open(copied).batches("a", batch_size=2)
    with monkeypatch.context() as patch:

        def refused(*_: object) -> None:
            raise OSError(24, "Too many open files")

        patch.setattr("tokenmill.load.rows.shard_maps.xxhash.xxh3_64_intdigest", refused)
        with pytest.raises(OSError, match="Too many open files"):
            batches.batch(0)
    with pytest.raises(VerificationError, match="the digest of the block at byte 0 differs"):
        batches.batch(0)


def test_a_shard_that_was_changed_while_it_was_not_mapped_is_checked_again(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_maps, "MOST_MAPPED", 1)
    dataset = tokenmill.open(copied)
    maps = ShardMaps(dataset)
    maps.require(np.array([0]))
    first = int(maps.first_blocks[0])
    maps.check(np.array([first]))
    maps.require(np.array([1]))
    path = dataset.shards[0].path("bin")
    path.write_bytes(path.read_bytes())  # the same bytes, at another time
    maps.require(np.array([0]))
    assert not maps.checked[first // 8] & 1
    maps.check(np.array([first]))
    assert maps.checked[first // 8] & 1


def test_a_table_of_ranges_without_loss_is_checked(tmp_path: Path) -> None:
    dataset = digits(tmp_path, ["123", "456"], no_loss=[[[0, 1]], [[1, 2]]])
    tokenmill.pack(dataset, name="a", sequence_length=4)
    path = dataset.shards[0].path("parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(VerificationError, match="a file of the dataset is damaged"):
        tokenmill.open(dataset.folder).batches("a", batch_size=1).batch(0)


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest as an attacker would: its digest is right again."""
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    change(content)
    digest = xxhash.xxh3_128_hexdigest(canonical_json({**content, "digest": ""}))
    path.write_bytes(canonical_json({**content, "digest": digest}))


def setting(*place: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    """Sets one value of a manifest."""

    def change(content: Any) -> None:
        for key in place[:-1]:
            content = content[key]
        content[place[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (setting("tokenizer", "pad_id", to=2_000_000_000), "tokenizer.pad_id is 2000000000"),
        (setting("tokenizer", "pad_id", to=12), "tokenizer.pad_id is 12, but the largest id is 11"),
        (setting("tokenizer", "eos_id", to=12), "tokenizer.eos_id is 12"),
        (setting("tokenizer", "prefix_ids", to=[1, 12]), "tokenizer.prefix_ids is 12"),
        (setting("tokenizer", "eos_id", to=-1), "Expected `int` >= 0"),
        (setting("tokenizer", "largest_id", to=2**31), "Expected `int` <= 2147483647"),
        (setting("tokenizer", "largest_id", to=70_000), "token_dtype is 'uint16'"),
        (setting("token_dtype", to="int32"), "token_dtype is 'int32'"),
        (setting("tokenizer", "kind", to="pickle"), "sentencepiece, python, got 'pickle'"),
        (setting("policies", to={}), "policies: Object missing required field `read`"),
        (setting("policies", "read", to=[]), "Expected `object`, got `array`"),
        (setting("policies", "encode", to={}), "policies: Object missing required field"),
        (setting("shards", 0, "documents", to=2**62), "Expected `int` <= 9007199254740992"),
        (setting("shards", 0, "documents", to=2**53), "shard 0: it cannot have 9007199254740992"),
        (setting("shards", 0, "documents", to=0), "shard 0: it cannot have 0 documents"),
        (setting("shards", 0, "files", to=[]), "its files are none"),
        (setting("shards", 0, "files", 1, "bytes", to=62), "its .bin, .idx and .xxh3 have"),
        (setting("shards", 0, "extents", 0, "source", to=7), "not among the 1 sources"),
        (setting("shards", 1, "files", 3, "name", to=FIRST_TABLE), "is named twice"),
        (setting("totals", "documents", to=2**40), "totals has 1099511627776 documents"),
        (setting("sources", 0, "counts", "records", to=-1), "Expected `int` >= 0"),
    ],
)  # fmt: skip
def test_a_manifest_that_breaks_a_rule_is_refused_when_it_is_opened(
    change: Callable[[dict[str, Any]], None], why: str, copied: Path
) -> None:
    change_manifest(copied, change)
    with pytest.raises(VerificationError) as caught:
        tokenmill.open(copied)
    assert why in str(caught.value)
    assert str(copied / "manifest.json") in str(caught.value)


def reseal_shard(folder: Path, number: int = 0) -> None:
    """Make block digests of a shard right, and what the manifest says of its files."""
    stem = folder / read_manifest(folder).shards[number].files[0].name
    parts = [stem.with_suffix(suffix).read_bytes() for suffix in (".bin", ".idx")]
    stem.with_suffix(".xxh3").write_bytes(b"".join(block_digests(memoryview(p)) for p in parts))

    def describe(content: dict[str, Any]) -> None:
        for file in content["shards"][number]["files"]:
            file["xxh3_128"] = file_digest(folder / file["name"])
            file["bytes"] = (folder / file["name"]).stat().st_size

    change_manifest(folder, describe)


def test_ids_above_the_largest_never_reach_a_batch(copied: Path) -> None:
    """An embedding that is asked for one kills the run on an accelerator."""
    path = copied / "tokens" / "00000000-000000.bin"
    ids = np.fromfile(path, "<u2")
    ids[0] = 65_535
    ids.tofile(path)
    reseal_shard(copied)
    with pytest.raises(VerificationError, match="ids above the largest id, 11"):
        all_batches(tokenmill.open(copied).batches("a", batch_size=4))


Index = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Lengths, offsets and document numbers, for a change in place."""


def swap_lengths(index: Index) -> None:
    lengths, _, _ = index
    assert lengths[0] != lengths[1]
    lengths[:2] = lengths[1], lengths[0]


def repeat_an_offset(index: Index) -> None:
    index[1][1] = index[1][0]


def shift_an_offset(index: Index) -> None:
    index[1][1] += 1


def make_a_length_negative(index: Index) -> None:
    index[0][0] = -index[0][0]


def empty_a_document(index: Index) -> None:
    lengths, offsets, _ = index
    lengths[1] += lengths[0]
    lengths[0] = offsets[1] = 0


def lengthen_the_last(index: Index) -> None:
    index[0][-1] += 1


def swap_documents(index: Index) -> None:
    index[2][:2] = 1, 0


def wrong_end(index: Index) -> None:
    index[2][-1] = 2**62


def load(folder: Path) -> None:
    all_batches(tokenmill.open(folder).batches("a", batch_size=1))


def export(folder: Path) -> None:
    tokenmill.export(folder, folder / "rows", plan="a")


def pack(folder: Path) -> None:
    tokenmill.pack(folder, name="b", sequence_length=32)


def show(folder: Path) -> None:
    tokenmill.view_document(folder, 0)


USES: list[Callable[[Path], object]] = [load, export, pack, show, tokenmill.verify]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "change",
    [
        swap_lengths,
        repeat_an_offset,
        shift_an_offset,
        make_a_length_negative,
        empty_a_document,
        lengthen_the_last,
        swap_documents,
        wrong_end,
    ],
)
def test_an_index_that_contradicts_itself_is_refused_by_whatever_reads_it(
    change: Callable[[Index], None], use: Callable[[Path], object], copied: Path
) -> None:
    """With digests that are right: they find damage, not lies."""
    path = copied / "tokens" / "00000000-000000.idx"
    data = bytearray(path.read_bytes())
    count = tokenmill.open(copied).shards[0].entry.documents
    change(
        (
            np.frombuffer(data, "<i4", count, 34),
            np.frombuffer(data, "<i8", count, 34 + 4 * count),
            np.frombuffer(data, "<i8", count + 1, 34 + 12 * count),
        )
    )
    path.write_bytes(data)
    reseal_shard(copied)
    with pytest.raises(VerificationError, match=r"index|problem"):
        use(copied)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    place=st.integers(0),
    value=st.integers(0, 255),
)
def test_the_loader_accepts_the_indexes_that_everything_else_accepts(
    lengths: list[int], place: int, value: int
) -> None:
    data = bytearray(pack_index(np.array(lengths), np.dtype("<u2")))
    body = len(data) - HEADER.size
    data[HEADER.size + place % body] = value
    try:
        found = unpack_index(data, "")[1].tolist()
    except VerificationError:
        found = None
    expected = found is not None and sum(found) == sum(lengths) and min(found) > 0
    index = memoryview(data)[HEADER.size :]
    assert index_is_sound(index, len(lengths), sum(lengths), 2) == expected


def test_a_manifest_whose_largest_id_is_not_the_tokenizers_is_refused(copied: Path) -> None:
    """A padding id could hide behind it."""
    change_manifest(copied, setting("tokenizer", "largest_id", to=60_000))
    change_manifest(copied, setting("tokenizer", "pad_id", to=60_000))
    manifest = tokenmill.open(copied).manifest
    sealed_id = dataset_id(manifest.shards, manifest.tokenizer, manifest.policies)
    change_manifest(copied, setting("dataset_id", to=sealed_id))
    for use in (tokenmill.verify, show):
        with pytest.raises(VerificationError, match="the largest id is 60000 in the manifest"):
            use(copied)


def change_plan(folder: Path, **changes: Any) -> None:
    path = folder / "plans" / "a" / "plan.json"
    manifest = msgspec.json.decode(path.read_bytes(), type=PlanManifest)
    write_sealed(path, msgspec.structs.replace(manifest, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_sequences": 2**62},
        {"num_sequences": -1},
        {"num_segments": 2**62},
        {"windows": [{"shards": 2**62, "sequences": 2**62}] * 8},
        {"windows": [{"shards": 1, "sequences": -1}]},
        {"options": {}},
        {"options": {"sequence_length": 2**62}},
        {"figures": {}},
        {"figures": {"most_segments": []}},
    ],
)
def test_a_plan_with_impossible_numbers_is_refused(changes: dict[str, Any], copied: Path) -> None:
    change_plan(copied, **changes)

    def use() -> None:
        plan = open_plan(tokenmill.open(copied), "a")
        figures_of(plan)
        options_of_plan(plan.manifest.options, "")

    with pytest.raises(VerificationError):
        use()


def test_offsets_that_come_full_circle_are_found(copied: Path) -> None:
    """Their differences are positive in 64 bits."""

    def circle(values: np.ndarray) -> None:
        values[1:5] = 2**62, 2**63 - 1, -(2**63) + 5, -(2**62)

    rewrite_array(copied, "offsets", circle)
    with pytest.raises(VerificationError, match="a sequence has no segment"):
        tokenmill.verify(copied)


def rewrite_table(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    path = folder / "documents" / "00000000-000000.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    reseal_shard(folder)


def without(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.drop_columns([name])


def with_spans(start: int, stop: int) -> Callable[[pa.Table], pa.Table]:
    """The first document has one range without loss."""

    def change(table: pa.Table) -> pa.Table:
        place = table.column_names.index("no_loss")
        rows = [[{"start": start, "stop": stop}]] + [[]] * (table.num_rows - 1)
        return table.set_column(place, "no_loss", pa.array(rows, table.schema.field(place).type))

    return change


def with_null_positions(table: pa.Table) -> pa.Table:
    place = table.column_names.index("position")
    return table.set_column(place, "position", pa.nulls(table.num_rows, pa.int64()))


def with_text_positions(table: pa.Table) -> pa.Table:
    place = table.column_names.index("position")
    return table.set_column(place, "position", table.column("position").cast(pa.string()))


@pytest.fixture(scope="module")
def with_ranges(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Two documents of four tokens, and the plan `a`."""
    dataset = digits(tmp_path_factory.mktemp("ranges"), ["123", "456"], no_loss=[[[0, 1]], []])
    tokenmill.pack(dataset, name="a", sequence_length=4)
    return dataset


@pytest.mark.parametrize(
    "change",
    [
        without("no_loss"),
        without("source"),
        lambda table: table.slice(0, 1),
        with_text_positions,
        with_spans(-1, 2),
        with_spans(2, 2),
        with_spans(0, 5),
        with_spans(0, 2**62),
    ],
)
def test_a_documents_table_that_breaks_a_rule_is_refused(
    change: Callable[[pa.Table], pa.Table], with_ranges: Dataset, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(with_ranges.folder, tmp_path / "copy"))
    rewrite_table(folder, change)
    for use in (load, tokenmill.verify):
        with pytest.raises(VerificationError, match="documents table"):
            use(folder)


def test_a_document_without_a_position_is_refused(with_ranges: Dataset, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(with_ranges.folder, tmp_path / "copy"))
    rewrite_table(folder, with_null_positions)
    for use in (show, tokenmill.verify):
        with pytest.raises(VerificationError, match="the column 'position' has null values"):
            use(folder)

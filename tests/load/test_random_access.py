"""Sources of documents and of rows: items by their index, for Grain and for everything like it."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loading_kit import as_lists, digits, plan_of
from remote_kit import blocks_of_digits, damage
from resume_kit import PLANS, as_bytes, sharded

import tokenmill.grain
from cloud_kit.s3 import BUCKET, moto, s3_environment
from tokenmill import Dataset
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.load.columns import MaskedLM
from tokenmill.load.fill_in_middle import FillInMiddle
from tokenmill.store.cloud.client import Client
from tokenmill.store.digests import BLOCK_BYTES
from view_kit import documents_of, view_of

ARRAYS = ("input_ids", "labels", "position_ids", "cu_seqlens", "max_seqlen", "loss_weights")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sharded(tmp_path_factory.mktemp("corpus") / "c", per_shard=30)


@pytest.fixture
def small(tmp_path: Path) -> Dataset:
    """Two documents, and the plan `p` that puts the first one and a part of the second in a row."""
    dataset = digits(tmp_path, ["789", "3425"])
    plan_of(
        dataset.folder / "plans/p", dataset, [[(0, 0, 4), (1, 0, 2)], [(1, 2, 3)]],
        sequence_length=7,
    )  # fmt: skip
    return tokenmill.open(dataset.folder)


def documents(source: tokenmill.grain.DocumentSource) -> list[list[int]]:
    return [item["input_ids"].tolist() for item in source]


def test_an_item_is_a_document_or_a_row(small: Dataset) -> None:
    found = tokenmill.grain.documents(small)
    assert len(found) == 2
    assert as_lists(found[0]) == {"input_ids": [7, 8, 9, 0]}
    assert as_lists(found[-1]) == {"input_ids": [3, 4, 2, 5, 0]}
    rows = tokenmill.grain.rows(small, labels="next")
    assert len(rows) == 2
    assert as_lists(rows[0]) == {
        "input_ids": [7, 8, 9, 0, 3, 4, 10],
        "labels": [8, 9, 0, -100, 4, 2, -100],
        "position_ids": [0, 1, 2, 3, 0, 1, 0],
        "segment_ids": [0, 0, 0, 0, 1, 1, -1],
    }
    assert as_lists(rows[np.int64(1)])["input_ids"] == [2, 5, 0, 10, 10, 10, 10]
    with pytest.raises(IndexError, match="index 2 of a source with 2 items"):
        rows[2]


@pytest.mark.parametrize("plan", PLANS)
def test_rows_are_those_of_the_loader(corpus: Dataset, plan: str) -> None:
    options = {"columns": (*ARRAYS, "task_ids"), "positions": "document", "without_prefix": 1}
    rows = tokenmill.grain.rows(corpus, plan, **options)
    batches = corpus.batches(plan, batch_size=1, **options)
    assert len(rows) == len(batches) > 100
    for step in range(len(batches)):
        row = rows[int(batches.global_batch(step).sequences[0])]
        flat = ("cu_seqlens", "max_seqlen")
        batch = {
            name: value if name in flat else value[0] for name, value in batches.batch(step).items()
        }
        assert as_bytes(row) == as_bytes(batch)


def test_a_view_has_the_documents_that_it_chose(corpus: Dataset, tmp_path: Path) -> None:
    assert documents(tokenmill.grain.documents(corpus)) == documents_of(corpus)
    view = view_of(tmp_path / "view", [corpus], {0, 29, 30, 61, 89})
    assert documents(tokenmill.grain.documents(view.folder)) == documents_of(view)
    assert len(tokenmill.grain.documents(view)) == 5


def test_a_repr_says_all_that_decides_items_and_no_folder(small: Dataset, tmp_path: Path) -> None:
    dataset, plan = small.manifest.dataset_id, tokenmill.open_plan(small, "p").manifest.plan_id
    small.folder.rename(tmp_path / "moved")
    moved = tokenmill.open(tmp_path / "moved")
    assert repr(tokenmill.grain.documents(moved)) == f"DocumentSource(dataset={dataset})"
    assert repr(tokenmill.grain.rows(moved, columns=["input_ids"], labels="next")) == (
        f"RowSource(dataset={dataset}, plan={plan}, columns=('input_ids',), labels='next')"
    )


def test_processes_and_threads_share_a_source(corpus: Dataset) -> None:
    sources: list[Any] = [tokenmill.grain.documents(corpus), tokenmill.grain.rows(corpus, "packed")]
    for source in sources:
        items = [as_bytes(item) for item in source]
        sent = pickle.dumps(source)
        assert len(sent) < 2000
        copy = pickle.loads(sent)
        assert repr(copy) == repr(source)
        with ThreadPoolExecutor(8) as threads:
            found = threads.map(copy.__getitem__, [*range(len(source))] * 4)
        assert [as_bytes(item) for item in found] == items * 4


def test_damage_is_an_error(tmp_path: Path) -> None:
    dataset = blocks_of_digits(tmp_path / "d")
    documents, rows = tokenmill.grain.documents(dataset), tokenmill.grain.rows(dataset)
    damage(dataset.shards[0].path("bin"), 1)
    for source in (documents, rows):
        with pytest.raises(VerificationError, match="a file of the dataset is damaged"):
            list(source)


def test_a_bucket_is_read_through_a_small_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = blocks_of_digits(tmp_path / "d")
    with moto() as port:
        for name, value in s3_environment(port).items():
            monkeypatch.setenv(name, value)
        location = f"s3://{BUCKET}/random-access"
        client = Client(location)
        for path in dataset.folder.rglob("*"):
            if path.is_file():
                client.put_file(path.relative_to(dataset.folder).as_posix(), path)
        there = tokenmill.open(location, cache=tmp_path / "cache", cache_bytes=4 * BLOCK_BYTES)
        assert documents(tokenmill.grain.documents(there)) == documents_of(dataset)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"masked_lm": MaskedLM(mask_id=11, vocab_size=12)}, "does not support masked_lm"),
        ({"fill_in_middle": FillInMiddle(prefix=1, suffix=2, middle=3)}, "fill_in_middle"),
        ({"columns": ["segmentation"]}, "segmentation is no array"),
        ({"columns": ["input"]}, "unknown input"),
    ],
)
def test_what_no_source_can_give_is_refused(
    small: Dataset, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        tokenmill.grain.rows(small, **options)
    with pytest.raises(UserError, match="unknown option"):
        tokenmill.grain.rows(small, batch_size=2)  # type: ignore[call-arg]

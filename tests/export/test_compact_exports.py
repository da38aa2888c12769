"""What pt and Parquet files leave out by default, and how a reader gets it back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET

import tokenmill
from conftest import write_jsonl
from tokenmill.load.export.rows.writers import dtypes_of
from tokenmill.load.rows.reader import RowReader
from tokenmill.load.steps.order import shuffled
from tokenmill.store.exports import ExportOptions
from tokenmill.store.row_format import Labels

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "other-trainers.md"
LENGTH = 16
TEXTS = ["one two", "x", "the end " * 9, "Z" * LENGTH, "a b c d e f g h i j k l m n", "three"] * 4

pytestmark = pytest.mark.usefixtures("without_waiting_for_disks")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> tokenmill.Dataset:
    """Documents end with id 0, which is the padding id, too; some leave only that behind a cut."""
    folder = tmp_path_factory.mktemp("compact")
    path = write_jsonl(folder / "a.jsonl", TEXTS)
    report = tokenmill.build(path, tokenizer_path, folder / "out", workers=1)
    assert report.dataset.shards[0].lengths.tolist().count(LENGTH + 1) == 4
    return tokenmill.open(report.out)


def labels_of(dataset: tokenmill.Dataset, plan: tokenmill.Plan, labels: Labels) -> list[list[int]]:
    rows = RowReader(dataset, plan, labels).read(shuffled(plan, 0), LENGTH)
    return np.where(rows.has_label, rows.labels.astype(np.int64), -100).tolist()


def labels_by_the_guide(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[list[int]]:
    """Those that the program of the guide computes in the folder above `rows/`."""
    section = GUIDE.read_text().split("\n## Read exported rows\n")[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    seen: list[list[int]] = []
    monkeypatch.chdir(folder)
    exec(found[1] + "    seen += labels.tolist()\n", {"seen": seen})
    return seen


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"packing": "concat-and-chunk"},
        {"reserve": 4},
        {"max_segments": 1},
        {"long_documents": "sliding-window", "overlap": 4, "overlap_in_loss": True},
    ],
    ids=str,
)
def test_the_reader_of_the_guide_computes_labels_that_are_left_out(
    options: Any, dataset: tokenmill.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    plan = tokenmill.pack(dataset, folder=tmp_path / "p", sequence_length=LENGTH, **options).plan
    made = tokenmill.export(dataset, tmp_path / "rows", plan=plan, format="pt")
    assert made.dtypes == {"input_ids": "uint16", "position_ids": "uint16"}
    rule = "input_ids, but -100 where position_ids is 0 and in padding"
    assert made.left_out == {"labels": rule}
    assert labels_by_the_guide(monkeypatch, tmp_path) == labels_of(dataset, plan, "aligned")


def test_positions_in_pt_files_take_two_bytes_if_all_fit() -> None:
    options = ExportOptions(format="pt", columns=("position_ids",))
    assert dtypes_of(options, 65_536) == {"position_ids": "uint16"}
    assert dtypes_of(options, 65_537) == {"position_ids": "int32"}


@pytest.mark.parametrize(
    "options",
    [
        {"at_cuts": "bos"},
        {"at_cuts": "eos"},
        {"segment_multiple": 2},
        {"long_documents": "sliding-window", "overlap": 4},
        {"long_documents": "keep-both-ends"},
    ],
    ids=str,
)
def test_labels_that_the_reader_could_not_compute_are_kept(
    options: Any, dataset: tokenmill.Dataset, tmp_path: Path
) -> None:
    plan = tokenmill.pack(dataset, folder=tmp_path / "p", sequence_length=LENGTH, **options).plan
    made = tokenmill.export(dataset, tmp_path / "rows", plan=plan)
    assert (list(made.dtypes), made.left_out) == (["input_ids", "labels", "position_ids"], UNSET)


def test_labels_are_kept_where_a_text_can_look_like_padding(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    """With control tokens, a text of padding ids only is no padding."""
    path = write_jsonl(tmp_path / "a.jsonl", ["one two", "<|endoftext|><|endoftext|>"])
    options = {"special_tokens": "control", "sequence_length": LENGTH}
    tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1, **options)
    made = tokenmill.export(tmp_path / "out", tmp_path / "rows")
    assert (list(made.dtypes), made.left_out) == (["input_ids", "labels", "position_ids"], UNSET)
    alone = tokenmill.export(tmp_path / "out", tmp_path / "places", columns=["position_ids"])
    assert alone.left_out is UNSET


def test_labels_without_loss_on_some_tokens_are_kept(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["one two", "three"], mask=[[[0, 3]], []])
    tokenmill.build(
        path, tokenizer_path, tmp_path / "out", workers=1, no_loss="mask", sequence_length=LENGTH
    )
    made = tokenmill.export(tmp_path / "out", tmp_path / "rows")
    assert list(made.dtypes) == ["input_ids", "labels", "position_ids"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["input_ids", "position_ids"]),
        ({"with_labels": True}, ["input_ids", "labels", "position_ids"]),
        ({"labels": "next"}, ["input_ids", "labels", "position_ids"]),
        ({"columns": ["input_ids", "labels"]}, ["input_ids", "labels"]),
        ({"columns": ["input_ids"], "with_labels": True}, ["input_ids", "labels"]),
        ({"format": "npy"}, ["input_ids", "labels", "position_ids"]),
        ({"format": "datasets"}, ["input_ids", "labels", "position_ids"]),
    ],
    ids=str,
)
def test_labels_are_written_if_they_are_asked_for(
    options: Any, expected: list[str], dataset: tokenmill.Dataset, tmp_path: Path
) -> None:
    plan = tokenmill.pack(dataset, folder=tmp_path / "plan", sequence_length=LENGTH).plan
    made = tokenmill.export(dataset, tmp_path / "rows", plan=plan, **options)
    assert list(made.dtypes) == list(made.options.columns) == expected

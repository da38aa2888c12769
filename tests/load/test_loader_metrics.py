"""The metrics of loaders: what the file of `metrics=` holds while training, and after it."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from loading_kit import digits
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import tokenmill
from conftest import TEXTS, write_jsonl
from tokenmill import Dataset
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.store import open_metrics

pytest.importorskip("torch")

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create . worker processes:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
Values = dict[str, dict[tuple[str, ...], float]]
RUN = ("loader",)
AFTER_TWO_STEPS = {
    "step": {RUN: 2}, "epoch": {RUN: 0.5}, "steps": {RUN: 2}, "samples": {RUN: 6},
    "tokens": {RUN: 36}, "padding_tokens": {RUN: 12}, "padding_ratio": {RUN: 0.25},
    "wait_seconds": {RUN: 0}, "wait_ratio": {RUN: 0}, "fetched_bytes": {RUN: 0},
}  # fmt: skip
HOSTILE = 'a"b\\c\nd}'


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Twelve rows of 8 tokens: five tokens and an end of document, two tokens of padding."""
    dataset = digits(tmp_path_factory.mktemp("rows") / "rows", ["12345"] * 12)
    tokenmill.pack(dataset, name="only", sequence_length=8, max_segments=1)
    return tokenmill.open(dataset.folder)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still: nothing waits, and only the first and the last write happen."""
    monkeypatch.setattr("tokenmill.load.stats.clock", lambda: 1.0)


def values_in(path: Path) -> Values:
    """Samples by the name of their family and the values of their labels."""
    found = {
        family.name.removeprefix("tokenmill_loader_"): {
            tuple(each.labels.values()): each.value for each in family.samples
        }
        for family in text_string_to_metric_families(path.read_text())
    }
    assert found.pop("updated_timestamp_seconds")
    return found


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_a_loader_leaves_what_was_taken(
    workers: int | None, rows: Dataset, tmp_path: Path, still: None
) -> None:
    path = tmp_path / "loader.om"
    loader = rows.loader(batch_size=3, metrics=path)
    assert not any(value for values in values_in(path).values() for value in values.values())
    for _ in islice(loader if workers is None else loader.dataloader(workers), 2):
        pass
    assert values_in(path) == AFTER_TWO_STEPS
    assert list(tmp_path.iterdir()) == [path]


def test_numpy_batches_leave_the_same(rows: Dataset, tmp_path: Path, still: None) -> None:
    for _ in islice(rows.batches(batch_size=3, metrics=str(tmp_path / "loader.om")), 2):
        pass
    assert values_in(tmp_path / "loader.om") == AFTER_TWO_STEPS


def test_a_mixture_names_its_sources_and_each_rank_has_a_file(
    rows: Dataset, tmp_path: Path, still: None
) -> None:
    plan = tokenmill.open_plan(rows, "only")
    sources = [
        MixtureSource(dataset=rows, plan=plan, name=name, share=share, epochs=None)
        for name, share in ((HOSTILE, 0.5), ("code", 0.5))
    ]
    options = {"global_batch_size": 4, "world_size": 2, "metrics": tmp_path / "loader.om"}
    for rank in (0, 1):
        for _ in islice(tokenmill.mix(sources, rank=rank, **options), 3):
            pass
    files = [values_in(tmp_path / f"loader-{rank}.om") for rank in (0, 1)]
    for rank, found in enumerate(files):
        name = (*RUN, str(rank))
        assert set(found["tokens"]) == {(*name, HOSTILE), (*name, "code")}
        assert sum(found["tokens"].values()) == 36
        assert found["source_epochs"] == {(*name, HOSTILE): 0.5, (*name, "code"): 0.5}
        assert found["step"] == {name: 3}


def test_a_text_loader_knows_no_step_epoch_or_download(
    tokenizer_path: Path, tmp_path: Path, still: None
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    path = tmp_path / "loader.om"
    options = {"sequence_length": 16, "batch_size": 2, "dropout": 0.1}
    next(iter(tokenmill.text_loader(source, tokenizer_path, metrics=path, **options)))
    found = values_in(path)
    assert set(found) == set(AFTER_TWO_STEPS) - {"step", "epoch", "fetched_bytes"}
    assert found["samples"] == {RUN: 2}


def test_the_file_follows_training(
    rows: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_metrics, "WRITE_SECONDS", 0.0)
    path = tmp_path / "loader.om"
    loader = rows.loader(batch_size=3, metrics=path)
    assert [values_in(path)["steps"][RUN] for _ in loader] == [1, 2, 3, 4]


def test_a_training_that_ends_with_python_leaves_its_last_step(
    rows: Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "loader.om"
    code = (
        "import sys, tokenmill; dataset, path = sys.argv[1:];"
        "batches = iter(tokenmill.open(dataset).loader(batch_size=3, metrics=path));"
        "next(batches); next(batches); next(batches); raise ValueError"
    )
    command = [sys.executable, "-c", code, str(rows.folder), str(path)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "ValueError" in result.stderr
    assert values_in(path)["step"] == {RUN: 3}


def test_a_loader_trains_on_if_the_file_cannot_be_written(
    rows: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    loader = rows.loader(batch_size=3, metrics=tmp_path / "file" / "loader.om")
    assert len(list(loader)) == 4
    assert len(caplog.records) == 1

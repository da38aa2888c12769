"""What packing saves: counts by hand for a few documents, and steps that are really taken."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenmill
from conftest import write_jsonl
from tokenmill.cli import main
from tokenmill.errors import Interrupted, UserError
from tokenmill.installed import install_command
from tokenmill.report.packing import runner
from tokenmill.report.packing.counted import ALONE, LONGEST, RowCounts

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Documents of 4, 4, 8 and 12 tokens: letters, the spaces between them, and EOS."""
    folder = tmp_path_factory.mktemp("packing-bench")
    texts = ["a b", "c d", "a b c d", "a b c d a b"]
    build = tokenmill.build(write_jsonl(folder / "a.jsonl", texts), tokenizer_path, folder / "out")
    lengths = [shard.read_lengths().tolist() for shard in build.dataset.shards]
    assert lengths == [[4, 4, 8, 12]]
    return folder / "out"


def bench(dataset: Path, *arguments: str) -> int:
    small = ["--sequence-length", "8", "--rows", "1", "--ranks", "1", "--layers", "1"]
    more = ["--hidden-size", "64", "--seconds", "1", "--device", "cpu"]
    return main(["bench", "packing", str(dataset), *small, *more, *arguments])


def test_everything_is_counted_and_timed(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOADING_SECONDS", 0.01)
    assert bench(dataset, "--json") == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (report["documents"], report["tokens"], report["device"]) == (4, 28, "cpu")
    rows = [RowCounts(**each) for each in report["rows"]]
    # Alone: 4, 4, 8 and 8 + 4, in five rows. Packed: 4 + 4, 8, 8, 4. Joined: 4 + 4, 8, 8, 4.
    squares = 4**2 + 4**2 + 8**2 + 8**2 + 4**2
    keys = squares / 2 / 28
    assert rows == [
        RowCounts(ALONE, 5, 1 - 28 / 40, 1, 0, keys, 5 * 8**2 / 2 / 28),
        RowCounts(LONGEST, 5, 0.0, 1, 0, keys, squares / 2 / 28),
        RowCounts("concat-and-chunk", 4, 1 - 28 / 32, 1, 0, keys, 4 * 8**2 / 2 / 28),
        RowCounts("best-fit", 4, 1 - 28 / 32, 1, 0, keys, 4 * 8**2 / 2 / 28),
    ]
    names = [each["packing"] for each in report["waiting"]]
    assert names == [ALONE, "concat-and-chunk", "best-fit"]
    assert all(list(each.values())[1:] == [1.0] * 4 for each in report["waiting"])  # of one rank
    assert [each["packing"] for each in report["loading"]] == names
    training = [(each["packing"], each["attention"]) for each in report["training"]]
    three = ["over whole rows", "mask over rows", "inside documents"]
    assert training == [
        (ALONE, "over whole rows"),
        (LONGEST, "over whole rows"),
        *(("concat-and-chunk", attention) for attention in three),
        *(("best-fit", attention) for attention in three),
    ]
    assert all(each["steps"] >= 1 for each in report["training"])
    assert report["training"][0]["speed_up"] == 1


def test_tables_come_as_text_and_csv(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOADING_SECONDS", 0.01)
    assert bench(dataset, "--packing", "best-fit") == 0
    out = capsys.readouterr().out
    names = ("rows: ", "ranks: ", "loading: ", "training: ")
    titles = [line for line in out.splitlines() if line.startswith(names)]
    assert [title.partition(":")[0] for title in titles] == ["rows", "ranks", "loading", "training"]
    assert bench(dataset, "--packing", "best-fit", "--csv") == 0
    lines = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert lines[:2] == [
        ["table", "packing", "attention", "figure", "value"],
        ["rows", ALONE, "", "rows", "5"],
    ]
    assert {line[0] for line in lines[1:]} == {"rows", "waiting", "loading", "training"}


def test_what_was_measured_is_kept_when_a_signal_stops_it(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(runner, "_train", stopped)
    monkeypatch.setattr(runner, "LOADING_SECONDS", 0.01)
    assert bench(dataset, "--json") == 128 + signal.SIGINT
    report = json.loads(capsys.readouterr().out)
    assert (len(report["rows"]), report["training"]) == (4, [])
    assert report["notes"] == ["interrupted: what is missing was not measured"]


def test_steps_are_kept_when_a_signal_stops_the_second_round(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenmill.report.packing.steps import Stepper, StepTime

    monkeypatch.setattr(runner, "LOADING_SECONDS", 0.01)
    taken, step = [], Stepper.step

    def stopped(self: Stepper, *arguments: Any, **options: Any) -> StepTime:
        taken.append(step(self, *arguments, **options))
        if len(taken) == 3 + 8 + 2:  # three to warm up, a round of eight
            raise Interrupted(signal.SIGINT)
        return taken[-1]

    monkeypatch.setattr(Stepper, "step", stopped)
    assert bench(dataset) == 128 + signal.SIGINT
    table = capsys.readouterr().out.partition("training: ")[2].partition("dataset")[0]
    assert len(table.splitlines()) == 3 + 8 + 2  # title and header; one empty line after each


def test_without_torch_the_hint_says_what_to_install(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "find_spec", lambda name: None)
    assert bench(dataset) == 2
    assert capsys.readouterr().err == (
        "tokenmill: steps of a model need PyTorch\n"
        "  why: the package torch is not installed\n"
        f"  next: {install_command('torch')}; tokenmill pack --compare counts without it\n"
    )


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("--packing bestfit", "'bestfit' is not a packing strategy"),
        ("--hidden-size 100", "--hidden-size must be a multiple of 64"),
        ("--rows 0", "numbers of a benchmark must be 1 or more"),
        ("--json --csv", "--json and --csv cannot be combined"),
    ],
)
def test_wrong_options_are_refused(
    arguments: str, what: str, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(dataset, *arguments.split()) == 2
    assert capsys.readouterr().err.startswith(f"tokenmill: {what}")


def test_a_mask_and_calls_inside_documents_give_the_same_logits() -> None:
    """Two rows: documents of 3 and 5 tokens and a token of padding; one of 9."""
    from tokenmill.report.packing.steps import MASK, WHOLE_ROWS, Stepper

    segment_ids = np.array([[0, 0, 0, 1, 1, 1, 1, 1, -1], [2] * 9])
    ids = np.arange(18).reshape(2, 9)
    positions = np.array([[0, 1, 2, 0, 1, 2, 3, 4, 0], list(range(9))])
    labels = np.where(segment_ids < 0, -100, ids)
    batch = {
        "input_ids": ids,
        "labels": labels,
        "position_ids": positions,
        "segment_ids": segment_ids,
    }
    stepper = Stepper("cpu", 2, 128, 9)
    try:
        assert stepper.largest_difference(batch) < 1e-5
        assert stepper.step(batch, MASK).row_tokens == 18
        assert stepper.step(batch, WHOLE_ROWS, shorten=True).row_tokens == 18
    finally:
        stepper.close()


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenmill.report.packing.steps import Stepper

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="PyTorch finds no GPU here"):
        Stepper("cuda", 1, 64, 8)

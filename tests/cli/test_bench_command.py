"""`tokenmill bench`: engines, whose ids are compared, and loaders."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tokenmill
from conftest import TEXTS, Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import Interrupted, UserError
from tokenmill.encode.engine_ranking import rank_engines
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.reports import bench, loader_bench
from tokenmill.reports.bench import Arrangement, arrangements_for, take_documents
from tokenmill.reports.loader_bench import LoaderRow, arrangements

SINGLE = Arrangement(encoder="tokenizers", batch_size=1)
BATCH = Arrangement(encoder="tokenizers", batch_size=2, threads=2)
WORKERS = Arrangement(encoder="tokenizers", batch_size=2, processes=2)


def shape(arrangement: Arrangement) -> tuple[str, int, int, int]:
    return tuple(getattr(arrangement, name) for name in arrangement.__struct_fields__)


def plan(monkeypatch: pytest.MonkeyPatch, *planned: Arrangement) -> None:
    monkeypatch.setattr(bench, "arrangements_for", lambda *_: list(planned))


def run(capsys: Printed, *arguments: object) -> tuple[int, Any]:
    """Exit code and report."""
    code = main(["bench", "tokenizers", "--json", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else captured.err


def test_a_file_is_measured_by_the_library_and_by_the_engines(tokenizer_path: Path) -> None:
    file = load_tokenizer_file(tokenizer_path)
    first, *others = rank_engines(file, False).names[:-1]
    assert [shape(found) for found in arrangements_for(file, 1000, 4)] == [
        ("tokenizers", 1, 1, 1),
        ("tokenizers", 256, 4, 1),
        (first, 256, 1, 1),
        (first, 250, 1, 4),
        ("tokenizers", 250, 1, 4),
        *(row for name in others for row in [(name, 256, 1, 1), (name, 250, 1, 4)]),
        ("tokenizers", 32, 4, 1),
        ("tokenizers", 1000, 4, 1),
    ]


def test_arrangements_are_measured_and_give_the_same_ids(
    monkeypatch: pytest.MonkeyPatch, tokenizer_path: Path, tmp_path: Path, capsys: Printed
) -> None:
    """Also where a file of the current folder is named like a module of the child."""
    plan(monkeypatch, SINGLE, BATCH, WORKERS)
    path = write_jsonl(tmp_path / "a.jsonl", ["", *TEXTS])
    (tmp_path / "psutil.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    code, report = run(capsys, "--tokenizer", tokenizer_path, "--input", path)
    assert code == 0
    num_bytes = sum(len(text.encode()) for text in TEXTS)
    assert (report["num_documents"], report["num_bytes"]) == (5, num_bytes)
    assert report["notes"] == ["5 documents, where 1,000 were asked for"]
    rows = report["rows"]
    for row in rows:
        assert (row["remark"], row["num_different"]) == ("", 0)
        assert min(row["seconds"], row["first_seconds"], row["startup_seconds"]) > 0
        assert row["peak_bytes"] > 20_000_000
    assert rows[0]["speed_up"] == 1
    assert rows[2]["peak_bytes"] > rows[0]["peak_bytes"]  # two processes


def measurement(*digests: int) -> bench._Measurement:
    return bench._Measurement(
        first_seconds=2.0,
        seconds=2.0,
        num_tokens=10_000_000,
        digests=np.array(digests, "<u8").tobytes(),
        startup_seconds=1.0,
        peak_bytes=5,
    )


def test_a_difference_is_shown_and_ends_with_code_7(
    tokenizer_path: Path, tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(monkeypatch, *(Arrangement(encoder="tokenizers", batch_size=size) for size in (1, 2, 3)))
    found = iter([measurement(0, 0), measurement(0, 1), measurement(0, 0)])
    monkeypatch.setattr(bench, "_measured", lambda tasks: [next(found)])
    path = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    arguments = ["--tokenizer", str(tokenizer_path), "--input", str(path), "--num-docs", "2"]
    assert main(["bench", "tokenizers", *arguments]) == 7
    shown = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in shown if line.startswith("tokenizers")]
    assert rows == [
        "tokenizers single 1 1 2.0000 2.0000 1 5.00 M 1.00 x 5 B 1.00 equal".split(),
        "tokenizers 2 1 1 2.0000 2.0000 1 5.00 M 1.00 x 5 B 1.00 1 DIFFER".split(),
        "tokenizers 3 1 1 2.0000 2.0000 1 5.00 M 1.00 x 5 B 1.00 equal".split(),
    ]


@pytest.mark.parametrize("how", ["--json", "--csv", ""])
def test_rows_are_kept_when_a_signal_stops_it(
    how: str, tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    plan(monkeypatch, SINGLE, BATCH, WORKERS)

    found = [[measurement(0)]]

    def measured(tasks: object) -> list[bench._Measurement]:
        if not found:
            raise Interrupted(signal.SIGTERM)
        return found.pop()

    monkeypatch.setattr(bench, "_measured", measured)
    path = write_jsonl(tmp_path / "a.jsonl", ["one"])
    arguments = ["--tokenizer", str(tokenizer_path), "--input", str(path), "--num-docs", "1"]
    code = main(["bench", "tokenizers", *arguments, *filter(None, [how])])
    assert code == 128 + signal.SIGTERM
    out, err = capsys.readouterr()
    note = (
        "interrupted by SIGTERM; not measured: tokenizers by 2, threads 2, processes 1, "
        "tokenizers by 2, threads 1, processes 2"
    )
    if how == "--json":
        report = json.loads(out.splitlines()[0])
        assert (len(report["rows"]), report["notes"]) == (1, [note])
    elif how == "--csv":
        assert out.splitlines() == [
            "encoder,batch_size,threads,processes,seconds,first_seconds,documents_per_second,"
            "tokens_per_second,speed_up,startup_seconds,peak_bytes,num_different,remark",
            "tokenizers,1,1,1,2.0,2.0,0.5,5000000.0,1.0,1.0,5,0,",
        ]
    else:
        assert note in out
    assert err == "tokenmill: stopped by SIGTERM; nothing was changed\n"


def test_what_there_is_no_time_for_is_named(
    tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    plan(monkeypatch, SINGLE, BATCH)
    times = iter([0, 0, 40, 40])
    monkeypatch.setattr(bench, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(bench, "_measured", lambda tasks: [measurement(0)])
    _, report = run(capsys, "--tokenizer", tokenizer_path, "--num-docs", 1)
    assert report["notes"] == ["left out after 50 s: tokenizers by 2, threads 2, processes 1"]


def test_too_few_documents_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write_jsonl(tmp_path / "a.jsonl", ["one", "two", "three"]))
    monkeypatch.setattr(bench, "MAX_BYTES", 7)
    notes = ["2 documents, where 3 were asked for"]
    assert take_documents(3, [path], "text") == (["one", "two"], notes)
    with pytest.raises(UserError, match="no document"):
        take_documents(3, [str(write_jsonl(tmp_path / "b.jsonl", [""]))], "text")


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("--seconds 0", "--seconds: got '0'; must be"),
        ("--num-docs 0", "--num-docs: got '0'; must be"),
        ("--json --csv", "--json and --csv cannot be combined"),
        ("--input nowhere.jsonl", "an input does not exist"),
    ],
)
def test_wrong_options_are_refused(
    option: str, what: str, tokenizer_path: Path, capsys: Printed
) -> None:
    arguments = ["bench", "tokenizers", "--tokenizer", str(tokenizer_path), *option.split()]
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"tokenmill: {what}")


# Loaders.


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    path = write_jsonl(folder / "a.jsonl", TEXTS * 20)
    dataset = tokenmill.build(path, tokenizer_path, folder / "dataset", workers=1).dataset
    tokenmill.pack(dataset, sequence_length=64)
    return dataset.folder


def test_the_simplest_arrangements_of_a_loader_come_first() -> None:
    def shapes(num_cores: int, *, is_remote: bool) -> list[tuple[int, int, int]]:
        rows = arrangements(num_cores, is_remote=is_remote)
        return [(row.workers, row.prefetch, row.prefetch_steps) for row in rows]

    assert shapes(3, is_remote=False) == [(0, 2, 0), (0, 8, 0), (1, 2, 0), (2, 2, 0)]
    assert shapes(1, is_remote=True) == [
        *((0, 2, 8), (0, 2, 32)),
        *((0, 8, 8), (0, 8, 32)),
        *((1, 2, 8), (1, 2, 32)),
    ]


def waiting(monkeypatch: pytest.MonkeyPatch, *shares: float) -> None:
    """Have arrangements wait for these shares of the time, one after another."""
    found = iter(shares)

    def measured(row: LoaderRow, *_: object) -> LoaderRow:
        figures = {"first_seconds": 0.5, "fastest_seconds": 0.004, "wait_share": next(found)}
        return replace(row, **figures)

    monkeypatch.setattr(loader_bench, "_measured", measured)
    monkeypatch.setattr(loader_bench, "usable_cores", lambda: 1)


def test_the_first_arrangement_that_keeps_up_is_named(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    waiting(monkeypatch, 0.2, 0.003)
    assert main(["bench", "loader", str(corpus), "--step-ms", "50"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "workers      ahead  wait per step  share  fastest step  first batch",
        "0        2 batches        0.00 ms  20.0%       4.00 ms       0.50 s",
        "0        8 batches        0.00 ms   0.3%       4.00 ms       0.50 s",
        "",
        "keeps up: 0.3% of a 50 ms step is waiting, with 0 workers, prefetch=8",
    ]


def test_a_loader_that_does_not_keep_up_gets_advice(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    waiting(monkeypatch, 0.5, 0.4, 0.123)
    assert main(["bench", "loader", str(corpus), "--step-ms", "2.5"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "does not keep up: 12.3% of a 2.5 ms step is waiting, with 1 worker, prefetch_factor=2",
        "next: use a faster disk or network, more cores, or fewer rows per step",
    ]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_is_measured_with_and_without_steps(
    workers: int, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    row = LoaderRow(workers=workers, prefetch=2, prefetch_steps=0)
    monkeypatch.setattr(loader_bench, "arrangements", lambda *_, **__: [row])
    monkeypatch.setattr(loader_bench, "NUM_STEPS", 7)
    arguments = ["--batch-size", "2", "--step-ms", "20", "--plan", "best-fit-64", "--json"]
    assert main(["bench", "loader", str(corpus), *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    (found,) = report["rows"]
    assert (found["workers"], found["prefetch"], found["steps"]) == (workers, 2, 7)
    assert found["wait_seconds"] > 0
    waited = 7 * found["wait_seconds"]
    assert found["wait_share"] <= waited / (waited + 7 * 0.02)
    assert report["best"] == found

"""`tokenmill bench tokenizers`: rows as they come, within a time, and kept when it is stopped."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from conftest import write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import Interrupted
from tokenmill.report.tokenizers.bench import runner
from tokenmill.report.tokenizers.bench.arrangements import Arrangement, by_importance
from tokenmill.report.tokenizers.bench.child import Measurement

SINGLE = Arrangement(encoder="tokenizers", batch_size=1)
BATCH = Arrangement(encoder="tokenizers", batch_size=2, threads=2)
WORKERS = Arrangement(encoder="tokenizers", batch_size=2, processes=2)
ENGINE = Arrangement(encoder="fastokens", batch_size=2)


class Clock:
    """A clock that moves by what each measurement takes, and a signal at one of them."""

    def __init__(self, *seconds: float, stopped_at: int | None = None) -> None:
        self.now = 0.0
        self._seconds = iter(seconds)
        self._stopped_at = stopped_at
        self._number = 0

    def monotonic(self) -> float:
        return self.now

    def measured(self, *_: object) -> Measurement:
        if self._number == self._stopped_at:
            raise Interrupted(signal.SIGTERM)
        self._number += 1
        self.now += next(self._seconds)
        return Measurement(
            first_seconds=1.0,
            seconds=[2.0],
            num_tokens=8,
            digests=b"\0" * 16,
            startup_seconds=0.5,
            peak_bytes=1000,
        )


@pytest.fixture
def arguments(tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    planned = [SINGLE, BATCH, WORKERS, ENGINE]
    monkeypatch.setattr(runner, "arrangements_for", lambda *_: iter(planned))
    path = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    return [
        *("bench", "tokenizers", "--num-docs", "2"),
        *("--tokenizer", str(tokenizer_path), "--input", str(path)),
    ]


def run(clock: Clock, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(runner, "_measured", clock.measured)
    monkeypatch.setattr(runner, "time", clock)
    return main(arguments)


def test_what_there_is_no_time_for_is_named(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All four would take 4 x 20 s; after batch (20 s) and engine (5 s), workers do not fit."""
    assert run(Clock(20, 20, 5), monkeypatch, *arguments, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    measured = [row["arrangement"]["encoder"] for row in report["rows"]]
    assert measured == ["slow", "tokenizers", "tokenizers", "fastokens"]
    assert report["notes"][-1] == (
        "left out to end within 50 s (--seconds): tokenizers by 2 2 processes"
    )


def test_all_are_measured_in_their_order_where_there_is_time(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Clock(1, 1, 1, 1), monkeypatch, *arguments, "--csv") == 0
    assert capsys.readouterr().out.splitlines() == [
        "encoder,batch_size,threads,python_threads,processes,seconds,num_passes,first_seconds,"
        "documents_per_second,tokens_per_second,speed_up,startup_seconds,peak_bytes,num_different,"
        "remark",
        "slow,1,1,False,0,,,,,,,,,,none: the tokenizer is not a Python object",
        "tokenizers,1,1,False,0,2.0,1,1.0,1.0,4.0,1.0,0.5,1000,0,",
        "tokenizers,2,2,False,0,2.0,1,1.0,1.0,4.0,1.0,0.5,1000,0,",
        "tokenizers,2,1,False,2,2.0,1,1.0,1.0,4.0,1.0,0.5,1000,0,",
        "fastokens,2,1,False,0,2.0,1,1.0,1.0,4.0,1.0,0.5,1000,0,",
    ]


@pytest.mark.parametrize("how", ["--json", "--csv", ""])
def test_rows_are_kept_when_a_signal_stops_it(
    how: str,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock(1, 1, stopped_at=2)
    assert run(clock, monkeypatch, *arguments, *filter(None, [how])) == 128 + signal.SIGTERM
    out, err = capsys.readouterr()
    note = "interrupted by SIGTERM; not measured: tokenizers by 2 2 processes, fastokens by 2"
    if how == "--json":
        report = json.loads(out)
        assert (len(report["rows"]), report["notes"][-1]) == (3, note)
    elif how == "--csv":
        assert len(out.splitlines()) == 1 + 3
    else:
        assert [line.split()[0] for line in out.splitlines()[1:4]] == ["slow", *["tokenizers"] * 2]
        assert note in out
    assert err == "tokenmill: stopped by signal 15; nothing was changed\n"


def test_by_importance_come_the_best_of_the_library_and_the_first_engine() -> None:
    small = Arrangement(encoder="tokenizers", batch_size=32, threads=2)
    large = Arrangement(encoder="tokenizers", batch_size=256, threads=2)
    huge = Arrangement(encoder="tokenizers", batch_size=1000, threads=2)
    one_thread = Arrangement(encoder="tokenizers", batch_size=250)
    threads = Arrangement(encoder="tokenizers", batch_size=125, threads=2, python_threads=True)
    one_worker = Arrangement(encoder="tokenizers", batch_size=250, processes=1)
    memo = Arrangement(encoder="memo", batch_size=250)
    library = [SINGLE, small, large, huge, one_thread, threads, one_worker, WORKERS]
    assert by_importance([*library, ENGINE, memo]) == [
        *(SINGLE, large, ENGINE, WORKERS, memo),
        *(small, huge, one_thread, threads, one_worker),
    ]


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("--seconds 0", "--seconds must be above 0"),
        ("--num-docs 0", "--num-docs must be above 0"),
        ("--json --csv", "--json and --csv cannot be combined"),
    ],
)
def test_wrong_options_are_refused(
    option: str, what: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, *option.split()]) == 2
    assert capsys.readouterr().err.startswith(f"tokenmill: {what}")

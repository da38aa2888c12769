"""A signal ends a command with 128 and its number, whatever it was doing; the next run resumes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from corpora import command, contents, write_corpus

import tokenmill
from conftest import Printed
from tokenmill.cli.signals import signals_as_errors
from tokenmill.core.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

NUM_MOMENTS = 40

SLEEPER = """
import pathlib, time
pathlib.Path({marker!r}).touch()
time.sleep(60)
"""


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """A command that heeds all signals, wherever the tests were started from."""

    def heed() -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=heed,
    )


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_the_tokenizer_loads_ends_with_its_number(
    number: signal.Signals, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=3)
    marker = tmp_path / "loading"
    (tmp_path / "sleeper.py").write_text(SLEEPER.format(marker=str(marker)))
    options = ["--tokenizer", "python:sleeper:Tokenizer", "--out", tmp_path / "out", "--json"]
    process = start("build", tmp_path / "data", *options, PYTHONPATH=python_path(tmp_path))
    while not marker.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + number, errors
    said = "interrupted" if number == signal.SIGINT else f"stopped by {number.name}"
    assert f"tokenmill: {said}" in errors
    assert json.loads(out.splitlines()[-1]) == {
        "event": "error",
        "what": said,
        "next": "run the same command again to resume",
        "exit_code": 128 + number,
    }


def python_path(folder: Path) -> str:
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("caught_by_library", [BaseException, Exception])
def test_what_a_library_makes_of_a_signal_is_still_that_signal(
    number: signal.Signals, caught_by_library: type[BaseException]
) -> None:
    def load() -> None:
        try:
            signal.raise_signal(number)
        except caught_by_library as error:
            raise ImportError("numpy._core.multiarray failed to import") from error

    with pytest.raises(Interrupted) as caught, signals_as_errors():
        load()
    assert caught.value.exit_code == 128 + number


def test_a_signal_that_a_finalizer_swallows_is_sent_again(capsys: Printed) -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def work() -> None:
        Finalized()
        time.sleep(30)

    before, started = sys.unraisablehook, time.monotonic()
    with pytest.raises(Interrupted) as caught, signals_as_errors():
        work()
    assert caught.value.exit_code == 143
    assert time.monotonic() - started < 20
    assert sys.unraisablehook is before
    assert capsys.readouterr().err == ""


INTERRUPTED_AT_EXIT = """
import atexit, signal, sys
from tokenmill.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
atexit.register(signal.raise_signal, signal.SIGINT)
sys.argv = ["tokenmill", "--version"]
sys.exit(main())
"""


def test_an_interrupt_while_python_exits_prints_nothing() -> None:
    command = [sys.executable, "-c", INTERRUPTED_AT_EXIT]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (-signal.SIGINT, "")


INTERRUPTED_IMPORT = """
import builtins, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
whole_import = builtins.__import__

def interrupted(name, *arguments):
    if name == "tokenmill.cli":
        signal.raise_signal(signal.SIGINT)
    return whole_import(name, *arguments)

builtins.__import__ = interrupted
import tokenmill.__main__
"""


def test_an_interrupt_while_the_program_is_imported_prints_nothing() -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (-signal.SIGINT, "")


def test_no_signal_can_interrupt_the_import_of_datetime_by_msgspec() -> None:
    """After that, msgspec crashes at its first use."""
    code = "import sys, tokenmill.cli; print({'datetime', 'msgspec'} & {*sys.modules})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout == "{'datetime'}\n"


def test_a_hang_up_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_errors():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def finish(arguments: list[object]) -> float:
    """Run a command to its end; returns the seconds that it took."""
    started = time.monotonic()
    process = start(*arguments)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return time.monotonic() - started


def stop(arguments: list[object], seconds: float, number: signal.Signals) -> int:
    """Send a signal to a command after some time; returns its exit code."""
    process = start(*arguments)
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    # Before Python runs our code, and after it has run it, a signal ends the process by itself.
    if number == signal.SIGINT and "KeyboardInterrupt" in errors and "tokenmill/" not in errors:
        return process.returncode  # Python itself was interrupted while it started
    assert process.returncode in (0, 128 + number, -number), errors
    assert "a bug" not in errors
    assert "Exception ignored" not in errors
    return process.returncode


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", ["build", "build with two workers", "pack", "export"])
def test_a_signal_at_any_moment_ends_with_its_number_and_the_next_run_makes_the_same_bytes(
    name: str, number: signal.Signals, tokenizer_path: Path, tmp_path: Path
) -> None:
    made, clean, plan = tmp_path / "made", tmp_path / "clean", tmp_path / "plan"
    write_corpus(tmp_path / "data", num_files=2, per_file=300)
    tokenmill.build(tmp_path / "data", tokenizer_path, clean, workers=1)
    tokenmill.pack(clean, folder=plan, sequence_length=64)
    build: list[object] = ["build", tmp_path / "data", "--tokenizer", tokenizer_path, "--out", made]
    commands: dict[str, list[object]] = {
        "build": [*build, "--workers", 1],
        "build with two workers": [*build, "--workers", 2],
        "pack": ["pack", clean, "--sequence-length", 64, "--plan-out", made],
        "export": ["export", clean, "--plan", plan, "--out", made],
    }
    arguments = commands[name]
    whole = finish(arguments)
    expected = contents(made)
    codes: Counter[int] = Counter()
    for moment in range(NUM_MOMENTS):
        shutil.rmtree(made)
        codes[stop(arguments, whole * (moment + 1) / NUM_MOMENTS, number)] += 1
        if name != "export" or not made.exists():  # what exists, an export refuses to replace
            finish(arguments)
        assert contents(made) == expected
    print(name, number.name, codes)
    assert codes[128 + number]

"""Workers that hang, swell, die or speak nonsense: the build ends, and names the document."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from corpora import contents, random_texts
from python_tokenizers import ByteTokenizer, DyingBytes, SleepingBytes
from setups import setup_for

import tokenmill
from encode.tokenizer_kit import (
    BYTES_ONLY,
    Json,
    added_token,
    byte_level_json,
    replace,
    sequence,
    split,
)
from tokenmill.core.child import Child, Program
from tokenmill.core.errors import EngineError, InternalError
from tokenmill.run import processes as watchdog
from tokenmill.run.processes import Process

POSITION = 29_050
"""Of the document that does harm, in bytes."""


def write_corpus(folder: Path, harmful: str) -> Path:
    """1,000 documents in one file; number 900 does harm. The first 200 are for calibration."""
    lines = [json.dumps({"text": text}) + "\n" for text in random_texts(1_000, words=10)]
    start = sum(map(len, lines[:900]))
    lines[900] = json.dumps({"text": harmful}) + "\n"
    assert start == POSITION, start
    path = folder / "corpus.jsonl"
    path.write_text("".join(lines))
    return path


def failure(corpus: Path, tokenizer: object, out: Path, **options: Any) -> EngineError:
    with pytest.raises(EngineError) as caught:
        tokenmill.build([corpus], tokenizer, out, **options)
    return caught.value


class StallWhenAsleep(threading.Thread):
    """Gives workers no time as soon as one sleeps, and all the time as soon as it has ended."""

    def __init__(self, asleep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(daemon=True)
        self.asleep = asleep
        self.monkeypatch = monkeypatch
        self.ended: set[int] = set()

    def run(self) -> None:
        while len(self.ended) < 2:
            sleepers = {int(path.name) for path in self.asleep.iterdir()} - self.ended
            for pid in sleepers:
                self.monkeypatch.setattr(watchdog, "STALL_SECONDS", 0.0)
                while psutil.pid_exists(pid):
                    time.sleep(0.01)
                self.monkeypatch.setattr(watchdog, "STALL_SECONDS", 300.0)
                self.ended.add(pid)
            time.sleep(0.01)


def test_a_worker_that_hangs_is_ended_twice_and_then_the_document_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = tmp_path / "asleep"
    asleep.mkdir()
    guard = StallWhenAsleep(asleep, monkeypatch)
    guard.start()
    corpus = write_corpus(tmp_path, "to slumber")
    error = failure(corpus, SleepingBytes(asleep), tmp_path / "out", workers=2)
    assert error.what == "a worker was ended twice on unit 00000000-000000"
    assert error.where == f"corpus.jsonl, position {POSITION}"
    assert error.why.endswith("in the engine python, on a document of 23 bytes")
    assert "made no progress for" in error.why
    assert error.exit_code == 7


def test_a_worker_that_dies_twice_names_the_document(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, "to perish")
    error = failure(corpus, DyingBytes(), tmp_path / "out", workers=2)
    assert error.what == "a worker died twice on unit 00000000-000000"
    assert error.where == f"corpus.jsonl, position {POSITION}"
    assert error.why == (
        "the last one ended with signal SIGSEGV, in the engine python, on a document of 22 bytes"
    )


def test_a_unit_that_runs_again_document_by_document_gives_the_same_bytes(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, "to perish")
    once = tmp_path / "once"
    tokenmill.build([corpus], DyingBytes(once), tmp_path / "again", workers=2)
    tokenmill.build([corpus], ByteTokenizer(), tmp_path / "clean", workers=1)
    assert once.exists()
    found, clean = contents(tmp_path / "again"), contents(tmp_path / "clean")
    tokens = [name for name in clean if name.startswith(("tokens/", "documents/"))]
    assert tokens
    assert {name: found[name] for name in tokens} == {name: clean[name] for name in tokens}


def with_steps(**steps: Json) -> Json:
    return byte_level_json(added_tokens=[added_token("<e>", 259, special=True)], **steps)


def save(tokenizer: Json, folder: Path) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(tokenizer))
    return path


BACKTRACKING = with_steps(pre_tokenizer=sequence(split("(q+)+$"), BYTES_ONLY))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_regex_that_gives_up_names_the_document_and_the_step(
    tmp_path: Path, workers: int
) -> None:
    corpus = write_corpus(tmp_path, "q" * 40 + "!")
    tokenizer = save(BACKTRACKING, tmp_path)
    options = {"workers": workers, "eos": "<e>", "engine": "reference"}
    error = failure(corpus, tokenizer, tmp_path / "out", **options)
    assert error.what == "the tokenizer failed on a document"
    assert error.where == f"corpus.jsonl, position {POSITION}"
    assert error.why.startswith("pre-tokenizer: PanicException")


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_a_regex_that_backtracks_for_hours_is_ended_with_one_worker_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Each try takes 50 ms and gives up just in time, at 5,000 places."""
    monkeypatch.setattr(watchdog, "STALL_SECONDS", 20.0)
    corpus = write_corpus(tmp_path, ("q" * 21 + "! ") * 5_000)
    tokenizer = save(BACKTRACKING, tmp_path)
    error = failure(corpus, tokenizer, tmp_path / "out", workers=workers, eos="<e>")
    assert error.where == f"corpus.jsonl, position {POSITION}"
    assert "in the pre-tokenizer, on a document of 115,013 bytes" in error.why


def test_a_normalizer_that_makes_a_text_a_billion_times_longer_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "MEMORY_A_BYTE", 10)
    steps = {"type": "Sequence", "normalizers": [replace("QZ", "QZ" * 100)] * 5}
    corpus = write_corpus(tmp_path, "QZ")
    tokenizer = save(with_steps(normalizer=steps), tmp_path)
    options = {"workers": 2, "memory": 512_000_000, "eos": "<e>", "engine": "reference"}
    error = failure(corpus, tokenizer, tmp_path / "out", **options)
    assert error.where == f"corpus.jsonl, position {POSITION}"
    assert "in the normalizer, on a document of 15 bytes" in error.why
    assert "bytes of memory, more than" in error.why


def test_a_process_that_was_stopped_itself_blames_no_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as popen:
        child: Any = popen
        process = Process(child, examined=True)
        setup: Any = SimpleNamespace(batch_bytes=1 << 20, growth_bytes=1 << 30)
        guard = watchdog.Watchdog(setup)
        now = time.monotonic()
        process.heard = now
        monkeypatch.setattr(time, "monotonic", lambda: now + 1_000)
        assert list(guard.overdue([process])) == []
        monkeypatch.setattr(time, "monotonic", lambda: now + 1_009)
        assert list(guard.overdue([process])) == []
        for seconds in range(1_010, 1_320, 9):
            monkeypatch.setattr(time, "monotonic", lambda now=now + seconds: now)
            assert list(guard.overdue([process])) == []
        monkeypatch.setattr(time, "monotonic", lambda: now + 1_322)
        assert [why for _, why in guard.overdue([process])] == ["made no progress for 321 s"]


def test_what_is_no_message_is_our_own_bug_and_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "odd_worker.py").write_text(
        "from tokenmill.core.child import Parent\n"
        "def main():\n"
        "    parent = Parent(dict)\n"
        "    parent.receive()\n"
        "    parent.send({'type': 'loaded', 'seconds': 'x'})\n"
        "    parent.receive()\n"
    )
    monkeypatch.syspath_prepend(folder)
    program = Program(module="odd_worker", task="tests", replies=None)
    phase: Any = SimpleNamespace(setup=setup_for(tmp_path), max_units=1, exam=Future())
    workers = watchdog.Processes(phase, lambda worker, event: None, lambda: Child(program))
    with pytest.raises(InternalError) as caught:
        workers.wait(60)
    workers.end()
    assert caught.value.what == "a worker sent an invalid message"
    assert 'in b\'{"type":"loaded","seconds":"x"}' in caught.value.why

"""Workers whose tokenizers start processes of their own: all of them end, and their end is seen."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
from corpora import contents, write_corpus
from python_tokenizers import ByteTokenizer, ForkingBytes

import tokenmill
from tokenmill.read import units


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 64 << 10)
    return write_corpus(tmp_path / "corpus", num_files=5, per_file=500)


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it still lives"
        time.sleep(0.01)


def test_what_a_worker_starts_ends_with_it(corpus: list[Path], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    tokenmill.build(corpus, ForkingBytes(pids), tmp_path / "out", workers=2)
    children = [int(path.read_text()) for path in pids.iterdir()]
    assert len(children) == 2
    for child in children:
        wait_until_gone(child)


def test_the_end_of_a_worker_is_seen_while_a_process_of_its_own_lives(
    corpus: list[Path], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()

    def kill_one() -> None:
        while not (workers := list(pids.iterdir())):
            time.sleep(0.001)
        os.kill(int(workers[0].name), signal.SIGKILL)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    tokenmill.build(corpus, ForkingBytes(pids), tmp_path / "out", workers=2)
    killer.join()
    tokenmill.build(corpus, ByteTokenizer(), tmp_path / "clean", workers=1)
    found, clean = contents(tmp_path / "out"), contents(tmp_path / "clean")
    assert {name: data for name, data in found.items() if name.startswith("tokens")} == {
        name: data for name, data in clean.items() if name.startswith("tokens")
    }

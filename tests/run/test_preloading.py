"""An engine that a worker has loaded ahead is used for the setup that asks for just that one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from setups import setup_for

import tokenmill
from conftest import TEXTS, write_jsonl
from tokenmill.core.child import Child
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.run.executor import Preload
from tokenmill.run.job import Setup
from tokenmill.run.machine import Resources
from tokenmill.run.pool import WorkerPool
from tokenmill.run.worker import engine_key, preload


@pytest.fixture
def order(tokenizer_path: Path) -> Preload:
    return Preload(
        path=str(tokenizer_path),
        kind="huggingface",
        encoding="",
        control_tokens=False,
        engine="reference",
        cache_bytes=1 << 20,
    )


def setup_of(tokenizer_path: Path) -> Setup:
    """Asks for the engine of the order."""
    return setup_for(tokenizer_path.parent, load_tokenizer_file(tokenizer_path).sha256)


@pytest.mark.parametrize("change", [{"engine": "memo"}, {"resources": Resources(2, "", 6, 2)}])
def test_another_engine_is_loaded_by_the_setup(
    order: Preload, tokenizer_path: Path, change: dict[str, object]
) -> None:
    setup, (found,) = setup_of(tokenizer_path), preload(order)
    assert found == engine_key(setup)
    assert found != engine_key(msgspec.structs.replace(setup, **change))
    (other,) = preload(msgspec.structs.replace(order, control_tokens=True))
    assert other != engine_key(setup)
    assert found != engine_key(setup_for(tokenizer_path.parent, "of other bytes"))


def test_what_cannot_be_loaded_ahead_is_left_to_the_setup(order: Preload) -> None:
    assert preload(msgspec.structs.replace(order, path="missing")) == {}
    assert preload(msgspec.structs.replace(order, engine="fastokens", kind="tiktoken")) == {}


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="nothing is preloaded here")
def test_waiting_workers_can_read_the_tokenizer_that_the_pool_names(
    tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[Preload] = []
    file = load_tokenizer_file(tokenizer_path)
    with WorkerPool(Resources(2, "", 1_500_000_000, 2)) as pool:
        monkeypatch.setattr(Child, "send", lambda child, message: orders.append(message))
        pool.preload(file, False, "reference")
        code = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
        read = subprocess.check_output([sys.executable, "-c", code, orders[0].path])
        assert read == file.data
        assert [digest for digest, *_ in preload(orders[0])] == [file.sha256]


def test_a_build_of_one_unit_starts_one_worker(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned = []

    def spawn(pool: WorkerPool) -> object:
        spawned.append(pool)
        return start(pool)

    start = WorkerPool._spawn
    monkeypatch.setattr(WorkerPool, "_spawn", spawn)
    source = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    report = tokenmill.build(source, tokenizer_path, tmp_path / "out", workers=4)
    assert report.manifest.totals.documents == len(TEXTS)
    assert len(spawned) == 1


def test_workers_that_wait_end_with_the_pool() -> None:
    others = psutil.Process().children()  # of other tests, such as a server that forks
    with WorkerPool(Resources(2, "", 1_500_000_000, 2)) as pool:
        pool.expect(2)
        children = [child for child in psutil.Process().children() if child not in others]
        assert len(children) == 2
    assert [child for child in children if child.is_running()] == []

"""Builds on a Ray cluster: a node dies, the driver dies, the head dies, and the bytes are equal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from corpora import contents, wait_for
from ray_lab import RayLab, ray_lab, why_not

from tokenmill.cli import main

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SLOW = "python:python_tokenizers:SlowBytes"
"""Units of a Python tokenizer are 1 MiB, and this one takes some seconds for each."""


@pytest.fixture
def lab() -> Iterator[RayLab]:
    """Three nodes of one CPU each."""
    if reason := why_not():
        pytest.skip(reason)
    with ray_lab(num_nodes=3) as lab:
        yield lab


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 MB of documents of 300 to 400 bytes: ten units."""
    folder = tmp_path_factory.mktemp("data")
    line = '{"text": "' + " ".join(["many words"] * 30) + ' %d"}\n'
    for name in ("a", "b"):
        lines = (line % number for number in range(15_000))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def local(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process builds."""
    out = tmp_path_factory.mktemp("local") / "corpus"
    assert main(arguments(data, out)[1:]) == 0
    return contents(out)


def arguments(data: Path, out: Path, *more: str) -> list[str]:
    inputs = ["tokenmill", "build", str(data), "--tokenizer", SLOW, "--out", str(out)]
    return [*inputs, "--workers", "1", *more]


@contextlib.contextmanager
def started(lab: RayLab, data: Path, out: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A build on the cluster."""
    command = [sys.executable, "-m", *arguments(data, out, "--on", "ray", *more)]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=lab.environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str], seconds: float = 400) -> str:
    """What it says in the end."""
    printed = process.communicate(timeout=seconds)[1]
    assert process.returncode == 0, printed
    return printed


def receipts(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "work" / "receipts").glob("*.json"))


def has_receipts(out: Path, count: int) -> Callable[[], bool]:
    return lambda: len(receipts(out)) >= count


def processes_of(out: Path) -> list[psutil.Process]:
    """Processes that have a file of an output open."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(file.path.startswith(str(out)) for file in process.open_files()):
                found.append(process)
    return found


def test_a_node_dies_and_another_takes_its_place(
    lab: RayLab, data: Path, local: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "corpus"
    with started(lab, data, out) as build:
        wait_for(has_receipts(out, 1), 200)
        lab.kill_node(0)
        lab.add_node()
        printed = finish(build)
    assert "lost  agent" in printed
    assert contents(out) == local


def test_a_driver_that_is_killed_costs_nothing(
    lab: RayLab, data: Path, local: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "corpus"
    with started(lab, data, out) as build:
        wait_for(has_receipts(out, 1), 200)
        build.kill()
    before = receipts(out)
    with started(lab, data, out) as build:
        finish(build)
    assert before
    assert contents(out) == local


def test_without_its_head_the_cluster_is_gone_and_the_build_is_resumed_by_hand(
    lab: RayLab, data: Path, local: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "corpus"
    with started(lab, data, out) as build:
        wait_for(has_receipts(out, 1), 200)
        lab.kill_head()
        time.sleep(5)
        build.kill()
    wait_for(lambda: not processes_of(out), 120)
    assert main(arguments(data, out)[1:]) == 0
    assert contents(out) == local


def test_ctrl_c_ends_the_agents(lab: RayLab, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    with started(lab, data, out) as build:
        wait_for(has_receipts(out, 1), 200)
        os.kill(build.pid, signal.SIGINT)
        printed = build.communicate(timeout=60)[1]
    assert build.returncode == 130
    assert "resume with the same command" in printed
    wait_for(lambda: not processes_of(out), 30)


def test_agents_that_have_no_room_are_refused(lab: RayLab, data: Path, tmp_path: Path) -> None:
    with started(lab, data, tmp_path / "corpus", "--agents", "4") as build:
        printed = build.communicate(timeout=120)[1]
    assert build.returncode == 2
    assert "the Ray cluster has no room for 4 agents" in printed
    assert not (tmp_path / "corpus").exists()

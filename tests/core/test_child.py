"""A child process answers, dies with an error that says why, and never outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from core.child_program import Work
from tokenmill.core.child import Child, ChildEnded, Limits, Program, child_pids

PROGRAM = Program(module="core.child_program", task="tests", replies=Work)


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child(PROGRAM)
    yield child
    child.end()


@pytest.mark.parametrize("size", [0, 3, 1 << 20])
def test_messages_and_bytes_of_any_size_arrive(child: Child, size: int) -> None:
    data = os.urandom(size)
    child.send(Work("nothing", 2**70), data)
    assert child.receive() == (Work("nothing", 2**70), data[::-1])
    assert child.pid in child_pids()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_death_names_its_signal(child: Child, number: signal.Signals) -> None:
    child.send(Work("die", number))
    with pytest.raises(ChildEnded, match=f"the process that tests has ended\n.*{number.name}"):
        child.receive()
    child.send(Work("nothing"))  # no error here
    with pytest.raises(ChildEnded) as caught:
        child.receive()
    assert caught.value.signal == number
    assert child.has_ended
    assert child.pid not in child_pids()


def test_an_exit_names_its_code(child: Child) -> None:
    child.send(Work("exit", 3))
    with pytest.raises(ChildEnded, match="exit code 3") as caught:
        child.receive()
    assert caught.value.signal is None


@pytest.mark.parametrize(
    ("what", "limit", "why"),
    [("spin", "time", "more than 0.2 s of CPU"), ("grow", "memory", "more than 300,000,000 bytes")],
)
def test_a_child_over_a_limit_is_killed(child: Child, what: str, limit: str, why: str) -> None:
    limits = Limits(0.2 if what == "spin" else 60, 300_000_000)
    child.send(Work("sleep", 0))
    assert child.receive(limits)[0] == Work("sleep", 0)
    child.send(Work(what))
    with pytest.raises(ChildEnded, match=why) as caught:
        child.receive(limits)
    assert caught.value.limit == limit
    assert child.has_ended


def test_waiting_takes_no_cpu_time_of_the_child(child: Child) -> None:
    child.send(Work("sleep", 1))
    assert not child.wait(0.01)
    assert child.receive(Limits(0.5, 1 << 40))[0] == Work("sleep", 1)


def test_prints_never_mix_with_messages() -> None:
    child = Child(replace(PROGRAM, stderr="piped"))
    child.send(Work("print"))
    assert [*child.lines()] == ["a library prints this", "to stderr"]
    assert child.receive() == (Work("print"), b"")
    child.end()


def test_a_module_can_be_left_out() -> None:
    child = Child(replace(PROGRAM, without=("msgspec",), stderr="piped"))
    assert any("msgspec" in line for line in child.lines())
    with pytest.raises(ChildEnded, match="exit code 1"):
        child.receive()
    child.end()


def test_a_child_may_clean_up_at_its_end(tmp_path: Path) -> None:
    child = Child(replace(PROGRAM, end_seconds=60))
    child.send(Work("at end"), bytes(tmp_path / "cleaned"))
    child.receive()
    child.end()
    assert (tmp_path / "cleaned").exists()


def test_no_descriptor_and_no_process_is_left_over() -> None:
    before = {*Path("/dev/fd").iterdir()}, child_pids()
    for what in ("exit", "nothing", "die"):
        child = Child(replace(PROGRAM, stderr="piped", pipe_bytes=1 << 16))
        child.send(Work(what, 9))
        child.wait(60)
        pid = child.pid
        del child  # is enough
        assert not psutil.pid_exists(pid)
    assert ({*Path("/dev/fd").iterdir()}, child_pids()) == before


FORKING = """
import os, signal, sys, time
from core.child_program import Work
from core.test_child import PROGRAM
from tokenmill.core.child import Child, ChildEnded

child = Child(PROGRAM)
child.send(Work("nothing"))
child.receive()
if os.fork() == 0:
    assert child.has_ended
    child.end()
    own = Child(PROGRAM)
    own.send(Work("nothing"))
    assert own.receive()[0] == Work("nothing")
    own.end()
    os.close(1)
    time.sleep(600)
child.send(Work("nothing"))
assert child.receive()[0] == Work("nothing")
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_child_ends_with_its_process_though_a_fork_of_that_lives() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKING],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    (fork,) = [each for each in psutil.Process(process.pid).children() if each != child]
    process.kill()
    process.wait()
    process.stdout.close()
    try:
        psutil.wait_procs([child], timeout=60)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
        assert fork.is_running()
    finally:
        fork.kill()

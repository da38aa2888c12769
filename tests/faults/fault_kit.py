"""Commands that run while one file-system call of theirs fails, or ends the process."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KILL = 0
KINDS = (
    "open",
    "write",
    "fsync",
    "rename",
    "link",
    "mkdir",
    "unlink",
    "close",
    "flock",
    "truncate",
)


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th call of a kind; `code` is an errno, or KILL."""

    kind: str
    number: int
    code: int
    sticky: bool = False

    def __str__(self) -> str:
        action = errno.errorcode.get(self.code, "KILL") + ("+" if self.sticky else "")
        return f"{action} at {self.kind} {self.number}"


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    """Negative: the signal that ended it."""
    errors: str
    calls: tuple[str, ...]
    """Kinds of the calls that were counted, in their order."""
    fired: str
    """The first call that failed, as the shim logs it; "" if none did."""


@dataclass(frozen=True)
class Job:
    """A command whose file-system calls are disturbed."""

    name: str
    arguments: Callable[[Path], list[object]]
    """The command line, for a folder to work in."""
    result: Callable[[Path], dict[str, bytes] | None]
    """The files of what it made, None while there is nothing that looks complete."""
    prepare: Callable[[Path], object] = lambda folder: None
    disturbed: str = ""
    """The part of the folder whose calls are counted."""
    keeps: bool = False
    """Whether there is a result at every moment: an old one, which the command replaces."""
    options_again: tuple[str, ...] = ()
    """What the same command needs the next time, because a complete result may be there."""


def compiled_shim(folder: Path) -> Path:
    """The shim, compiled into a folder; skips the test if it cannot be made or loaded."""
    if not sys.platform.startswith("linux"):
        pytest.skip("LD_PRELOAD is for Linux")
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler was found: cc, gcc or clang")
    path = folder / "shim.so"
    source = str(HERE / "shim.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", path, source, "-ldl"], check=True)
    return path


class Commands:
    """A process that runs commands under the shim."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def run(self, arguments: list[object], below: Path, fault: Fault | None = None) -> Outcome:
        """Run a command line; calls on paths that begin with `below` are counted."""
        counter, log, errors = (self._folder / name for name in ("counter", "log", "errors"))
        counter.write_bytes(bytes(8))
        log.write_bytes(b"")
        environment = {
            "FAULT_FOLDER": str(below),
            "FAULT_KIND": fault.kind if fault else "any",
            "FAULT_NUMBER": str(fault.number if fault else 0),
            "FAULT_ERRNO": str(fault.code if fault else 0),
            "FAULT_COUNTER": str(counter),
            "FAULT_LOG": str(log),
            **({"FAULT_STICKY": "1"} if fault and fault.sticky else {}),
        }
        order = {
            "arguments": [str(argument) for argument in arguments],
            "environment": environment,
            "errors": str(errors),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        lines = log.read_text().splitlines()
        return Outcome(
            code=code,
            errors=errors.read_text(errors="replace"),
            calls=tuple(line.split()[1] for line in lines),
            fired=next((line for line in lines if line.endswith(" fired")), ""),
        )


@contextmanager
def commands(folder: Path, **environment: str) -> Iterator[Commands]:
    """A process that runs commands until the end of the block."""
    folder.mkdir()
    own = {"LD_PRELOAD": str(compiled_shim(folder)), "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "zygote.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **own, **environment},
    )
    try:
        yield Commands(process, folder)
    finally:
        process.kill()
        process.communicate()


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def count_calls(here: Commands, job: Job, folder: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """What a job makes when nothing fails, and its calls."""
    folder.mkdir()
    job.prepare(folder)
    outcome = here.run(job.arguments(folder), folder / job.disturbed)
    assert outcome.code == 0, outcome.errors
    made = job.result(folder)
    assert made is not None
    return made, outcome.calls


UNFINISHED = re.compile(r"(.*/)?\.[^/]+\.tmp(/.*)?|copy\.json")
"""What a complete output may still hold until the same command runs again."""


def disturb(
    here: Commands, job: Job, folder: Path, fault: Fault, expected: dict[str, bytes]
) -> Outcome:
    """Run a job with a fault, then without one, and check what each of them left."""
    folder.mkdir()
    job.prepare(folder)
    before = job.result(folder)
    outcome = here.run(job.arguments(folder), folder / job.disturbed, fault)
    story = f"{job.name}, {fault}: {outcome.fired}: exit {outcome.code}\n{outcome.errors}"
    allowed = {0, -9} if fault.code == KILL else {0, 6}
    if fault.code == KILL and "was killed" in outcome.errors:
        allowed.add(7)  # the last call was that of a helper process
    assert outcome.code in allowed, story
    assert "Traceback" not in outcome.errors, story
    assert "a bug" not in outcome.errors, story
    assert "Exception ignored" not in outcome.errors, story
    assert outcome.fired or outcome.code == 0, story
    made = job.result(folder)
    is_whole = made is not None and made.items() >= expected.items()
    assert is_whole or made == before or (made is None and not job.keeps), story
    others = set(made) - set(expected) if made is not None and is_whole else set()
    assert all(UNFINISHED.fullmatch(name) for name in others), story
    assert outcome.code != 0 or made == expected, story
    again = here.run([*job.arguments(folder), *job.options_again], folder / job.disturbed)
    assert again.code == 0, f"{story}\nthen: {again.errors}"
    assert job.result(folder) == expected, story
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert not hidden, f"{story}\nleft: {hidden}"
    shutil.rmtree(folder)
    return outcome

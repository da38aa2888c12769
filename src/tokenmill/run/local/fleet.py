"""Worker processes: started, told what to do, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

from tokenmill.cloud.admission import admission_environment
from tokenmill.run.local.worker import WORKER_ENVIRONMENT
from tokenmill.run.machine.resources import Resources
from tokenmill.run.units import wire
from tokenmill.run.units.assignment import Assignment
from tokenmill.run.units.careful import Encoding


@dataclass(slots=True)
class Process:
    """A worker process, as the main process sees it."""

    popen: subprocess.Popen[bytes]
    running: Assignment | None = None
    uncommitted: dict[str, Assignment] = field(default_factory=dict)
    """By key: what is running, and what is being flushed."""
    used: bool = False
    """Whether it has been given a unit."""
    examined: bool = False
    calibrated: bool = False
    full: bool = False
    """Its memory has grown beyond its share: it is given no more units."""
    heard: float = 0.0
    """When it was last told or said something, as `time.monotonic` counts."""
    encoding: Encoding | None = None
    """The document that it encodes, if it has announced one."""
    ready_bytes: int = 0
    """Its memory when its engine was loaded."""
    blame: str = ""
    """What it has done, if the main process has ended it."""

    @property
    def examining(self) -> bool:
        """Whether it encodes the calibration texts."""
        return self.examined and not self.calibrated

    @property
    def reads_carefully(self) -> bool:
        """Whether it announces each document and has announced none: then it reads or writes."""
        careful = self.running is not None and self.running.careful
        return careful and self.ready_bytes > 0 and self.encoding is None

    def send(self, command: object) -> None:
        """Write a command to its standard input."""
        assert self.popen.stdin is not None
        self.heard = time.monotonic()
        try:
            self.popen.stdin.write(wire.encode(command))
            self.popen.stdin.flush()
        except BrokenPipeError:
            pass  # its end arrives as an event


class Fleet:
    """Worker processes: some wait, imports done, before there is anything to tell them."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._processes: list[Process] = []
        self._waiting: list[Process] = []

    def prepare(self) -> None:
        """Start workers, if there is to be more than one: they import while others resolve."""
        if self.resources.num_workers > 1:
            self._waiting = [self._spawn() for _ in range(self.resources.num_workers)]

    def dismiss_all(self) -> None:
        """End all workers, and those that wait."""
        for process in self._processes:
            self.dismiss(process)

    def enlist(self) -> Process:
        """A worker that has not been told anything yet."""
        return self._waiting.pop() if self._waiting else self._spawn()

    def kill(self, process: Process) -> None:
        """End a worker and the processes that it has started; its end arrives as an event."""
        if process.popen.returncode is None:  # else its number may be that of another process
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS, of the dead
                os.killpg(process.popen.pid, signal.SIGKILL)

    def dismiss(self, process: Process) -> int:
        """End a worker and the processes that it has started; returns its exit code."""
        self.kill(process)
        code = process.popen.wait()
        for stream in (process.popen.stdin, process.popen.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream:
                    stream.close()
        return code

    def _spawn(self) -> Process:
        popen = subprocess.Popen(
            # -P: no module is looked for in the folder where the command happens to be run.
            [sys.executable, "-P", "-m", "tokenmill.run.local.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                **admission_environment(),
                **WORKER_ENVIRONMENT,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            start_new_session=True,  # Ctrl-C is for the main process; and all of it ends at once
        )
        process = Process(popen)
        self._processes.append(process)
        return process

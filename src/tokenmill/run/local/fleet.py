"""Start, command and end worker processes.

The first worker starts before anything else is imported, so this module imports little.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tokenmill.run.machine.resources import Resources
from tokenmill.run.units import wire
from tokenmill.store.cloud.failures import admission_environment

if TYPE_CHECKING:
    import psutil

    from tokenmill.encode.tokenizer import TokenizerFile
    from tokenmill.run.units.assignment import Assignment
    from tokenmill.run.units.careful import Encoding

WORKER_ENVIRONMENT = {
    # One thread each: the workers are the parallelism.
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "FASTOKENS_BPE_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "1",
    # Batches are constantly allocated and freed, so keep their pages instead of faulting them in
    # again. 32 MiB is the largest threshold that glibc accepts.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


@dataclass
class Process:
    """A worker process, as the main process sees it."""

    popen: subprocess.Popen[bytes]
    running: Assignment | None = None
    uncommitted: dict[str, Assignment] = field(default_factory=dict)
    """The running unit and the units that are being flushed, by key."""
    used: bool = False
    """Whether it has been given a unit."""
    examined: bool = False
    calibrated: bool = False
    full: bool = False
    """Whether its memory has grown beyond its share, so that it gets no more units."""
    heard: float = 0.0
    """The time of the last message to or from it, by `time.monotonic`."""
    encoding: Encoding | None = None
    """The document that it is encoding, if it has announced one."""
    ready_bytes: int = 0
    """Its memory after its engine was loaded. 0 before."""
    blame: str = ""
    """Why the main process killed it. "" if it did not."""

    @cached_property
    def system(self) -> psutil.Process:
        """The process as psutil sees it.

        Raises:
            psutil.Error: The process is gone.
        """
        import psutil

        return psutil.Process(self.popen.pid)

    @property
    def examining(self) -> bool:
        """Whether it is encoding the calibration texts."""
        return self.examined and not self.calibrated

    @property
    def reads_carefully(self) -> bool:
        """Whether it runs a careful unit and is between documents: it is reading or writing."""
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
            pass  # the end of the process arrives as an event


class Fleet:
    """All worker processes. Some are started, and load an engine, before they are needed."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._processes: list[Process] = []
        self._waiting: list[Process] = []
        self._memory: int | None = None
        """The descriptor of an unnamed file in memory that passes a tokenizer to workers."""

    def prepare(self, num_workers: int) -> None:
        """Start workers until `num_workers` wait, so that they import modules early.

        Does nothing if the run uses this process only.
        """
        num_workers = min(num_workers, self.resources.num_workers)
        if self.resources.num_workers > 1:
            while len(self._waiting) < num_workers:
                self._waiting.append(self._spawn())

    def preload(self, file: TokenizerFile, control_tokens: bool, engine: str) -> None:
        """Let waiting workers load the engine that they will probably need.

        Does nothing for tokenizers that consist of more than one file.
        """
        from tokenmill.encode.kinds import KINDS
        from tokenmill.run.local.preloading import Preload

        whole = not KINDS[file.kind].is_described and not file.rank_encoding
        if self._memory is None or not self._waiting or not whole:
            return
        try:
            os.ftruncate(self._memory, 0)
            written = os.pwrite(self._memory, file.data, 0)
        except OSError:
            return  # not enough memory: workers load the stored tokenizer later
        order = Preload(
            descriptor=self._memory,
            num_bytes=len(file.data),
            kind=file.kind,
            encoding=file.encoding,
            control_tokens=control_tokens,
            engine=engine,
            cache_bytes=self.resources.cache_bytes,
        )
        if written == len(file.data):
            for process in self._waiting:
                process.send(order)

    def dismiss_all(self) -> None:
        """End all workers, including those that wait."""
        for process in self._processes:
            self.dismiss(process)
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

    def enlist(self) -> Process:
        """Return a fresh worker."""
        return self._waiting.pop() if self._waiting else self._spawn()

    def kill(self, process: Process) -> None:
        """Kill a worker and the processes that it has started. Its end arrives as an event."""
        if process.popen.returncode is None:  # else another process may have its number
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS, if it is dead
                os.killpg(process.popen.pid, signal.SIGKILL)

    def dismiss(self, process: Process) -> int:
        """Kill a worker and the processes that it has started. Returns its exit code."""
        self.kill(process)
        code = process.popen.wait()
        for stream in (process.popen.stdin, process.popen.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream:
                    stream.close()
        return code

    def _spawn(self) -> Process:
        if self._memory is None and hasattr(os, "memfd_create"):
            with contextlib.suppress(OSError):  # forbidden on this system: nothing is preloaded
                self._memory = os.memfd_create("tokenizer")
        popen = subprocess.Popen(
            # -P: do not import modules from the current folder.
            [sys.executable, "-P", "-m", "tokenmill.run.local.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                **admission_environment(),
                **WORKER_ENVIRONMENT,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            pass_fds=() if self._memory is None else (self._memory,),
            start_new_session=True,  # so that Ctrl-C only reaches the main process
        )
        process = Process(popen)
        self._processes.append(process)
        return process

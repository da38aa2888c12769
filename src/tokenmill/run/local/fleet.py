"""Worker processes: started, told what to do, and ended.

The first worker is started before anything else is imported, so this module needs little.
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

from tokenmill.cloud.admission import admission_environment
from tokenmill.run.machine.resources import Resources
from tokenmill.run.units import wire

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
    # Batches are allocated and freed all the time: keep their pages instead of faulting them anew.
    # 32 MiB is the most that glibc accepts.
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

    @cached_property
    def system(self) -> psutil.Process:
        """What the system says of it.

        Raises:
            psutil.Error: it is gone.
        """
        import psutil

        return psutil.Process(self.popen.pid)

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
    """Worker processes: some wait, engine loaded, before there is anything to tell them."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._processes: list[Process] = []
        self._waiting: list[Process] = []
        self._memory: int | None = None
        """Descriptor of an unnamed file in memory, through which workers get a tokenizer."""

    def prepare(self, num_workers: int) -> None:
        """Start workers until so many wait, if this run uses any: they import meanwhile."""
        num_workers = min(num_workers, self.resources.num_workers)
        if self.resources.num_workers > 1:
            while len(self._waiting) < num_workers:
                self._waiting.append(self._spawn())

    def preload(self, file: TokenizerFile, control_tokens: bool, engine: str) -> None:
        """Let workers that wait load the engine that will probably be asked of them.

        Nothing is done for tokenizers that are more than the bytes of one file.
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
            return  # there is no memory for it: they load what is stored, later
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
        """End all workers, and those that wait."""
        for process in self._processes:
            self.dismiss(process)
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

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
        if self._memory is None and hasattr(os, "memfd_create"):
            with contextlib.suppress(OSError):  # forbidden here: nothing is loaded ahead
                self._memory = os.memfd_create("tokenizer")
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
            pass_fds=() if self._memory is None else (self._memory,),
            start_new_session=True,  # Ctrl-C is for the main process; and all of it ends at once
        )
        process = Process(popen)
        self._processes.append(process)
        return process

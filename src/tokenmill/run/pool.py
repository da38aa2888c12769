"""The worker pool: worker processes on this machine, or only this process.

The first worker starts before anything else is imported, so this module imports little.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tokenmill.core.child import Child, Program
from tokenmill.run.machine import Resources
from tokenmill.store.cloud.failures import admission_environment

if TYPE_CHECKING:
    from tokenmill.encode.tokenizer import TokenizerFile
    from tokenmill.run.executor import Phase, Tell, Workers

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


class WorkerPool:
    """Starts worker processes, some before they are needed, and lets them load an engine ahead.

    A run with one worker uses this process, unless the tokenizer must be watched. A run with
    several workers never runs units in this process, so that a crash cannot end the run.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._children: list[Child] = []
        self._waiting: list[Child] = []
        self._memory: int | None = None
        """The descriptor of an unnamed file in memory: the tokenizer that workers load ahead."""

    def __enter__(self) -> WorkerPool:
        self._prepare(1)
        return self

    def __exit__(self, *_: object) -> None:
        """End all workers at once. A resumed run repeats what they have not committed."""
        for child in self._children:
            child.kill()
        for child in self._children:
            child.end()
        if self._memory is not None:
            os.close(self._memory)

    def expect(self, num_units: int | None) -> None:
        """Start workers for this number of units. None if the number is unknown."""
        self._prepare(self.resources.num_workers if num_units is None else num_units)

    def preload(self, file: TokenizerFile, control_tokens: bool, engine: str) -> None:
        """Let waiting workers load the engine that they will probably need.

        Does nothing for tokenizers that consist of more than one file.
        """
        from tokenmill.encode.kinds import KINDS
        from tokenmill.run.executor import Preload

        if not self._waiting or KINDS[file.kind].is_described or file.rank_encoding:
            return
        try:
            self._memory = os.memfd_create("tokenizer")
            written = os.write(self._memory, file.data)
        except (AttributeError, OSError):
            return  # not here, or not enough memory: workers load the stored tokenizer later
        order = Preload(
            path=f"/proc/{os.getpid()}/fd/{self._memory}",
            kind=file.kind,
            encoding=file.encoding,
            control_tokens=control_tokens,
            engine=engine,
            cache_bytes=self.resources.cache_bytes,
        )
        if written == len(file.data):
            for child in self._waiting:
                child.send(order)

    def begin(self, phase: Phase, tell: Tell) -> Workers:
        """Start the workers of a phase."""
        from tokenmill.run.processes import InProcess, Processes

        alone = self.resources.num_workers == 1 or phase.is_repeated
        if alone and not phase.setup.job.is_watched:
            return InProcess(phase, tell)
        return Processes(phase, tell, self._take)

    def _take(self) -> Child:
        """Return a fresh worker."""
        return self._waiting.pop() if self._waiting else self._spawn()

    def _prepare(self, num_workers: int) -> None:
        """Start workers until `num_workers` wait, so that they import modules early."""
        if self.resources.num_workers > 1:
            while len(self._waiting) < min(num_workers, self.resources.num_workers):
                self._waiting.append(self._spawn())

    def _spawn(self) -> Child:
        environment = {**admission_environment(), **WORKER_ENVIRONMENT}
        program = Program(
            module="tokenmill.run.worker",
            task="encodes documents",
            replies=None,  # `Processes` decodes them: their types are not imported yet
            environment=environment,
        )
        self._children.append(Child(program))
        return self._children[-1]

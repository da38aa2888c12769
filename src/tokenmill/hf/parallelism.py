"""Where a tokenizer runs: on the engine's threads in this process, or in worker processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tokenmill.hf.log import logger
from tokenmill.run.machine.cores import usable_cores

THREAD_VARIABLES = ("RAYON_NUM_THREADS", "RAYON_RS_NUM_THREADS")

_PID_OF_IMPORT = os.getpid()

_threads_of_pool: int | None = None
"""The threads requested from the pool of `tokenizers` in this process, as far as we know."""


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How many processes encode, shown in the log as the performance configuration."""

    num_proc: int
    is_slow: bool

    @property
    def uses_processes(self) -> bool:
        """Whether worker processes encode; a single process is the calling one."""
        return self.num_proc > 1

    def describe(self, batch_size: int) -> str:
        """The line for the log."""
        line = f"Performance configuration: batch_size={batch_size}"
        if self.is_slow and not self.uses_processes:
            return f"{line}, num_proc=1, parallelism=python_single_process"
        if self.uses_processes:
            return f"{line}, num_proc={self.num_proc}, parallelism=python_multiprocessing"
        return f"{line}, parallelism=fast_tokenizer_internal"


@contextmanager
def thread_environment(parallelism: Parallelism) -> Iterator[None]:
    """Set the environment variables of Rust tokenizers for one run, and restore them.

    A number of threads that the user has set is kept; `RAYON_NUM_THREADS` goes first.
    """
    alone = not parallelism.uses_processes and not _is_worker()
    threads = _wanted_threads() if alone else 1
    values = dict.fromkeys(THREAD_VARIABLES, str(threads))
    values["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
    if threads == 1:
        values["FASTOKENS_BPE_THREADS"] = "1"
    before = {name: os.environ.get(name) for name in values}
    _tell_of_pool(threads)
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _wanted_threads() -> int:
    for name in THREAD_VARIABLES:
        given = os.environ.get(name, "")
        if given.isdecimal() and int(given):
            return int(given)
    return usable_cores()


def _is_worker() -> bool:
    """Whether this is a child process. After a fork, the threads of the pool do not exist."""
    return multiprocessing.parent_process() is not None or os.getpid() != _PID_OF_IMPORT


def _tell_of_pool(threads: int) -> None:
    global _threads_of_pool
    if _threads_of_pool is None:
        _threads_of_pool = threads
        logger.debug(
            "%d threads requested; if tokenizers has already encoded in this process, its "
            "thread pool exists and cannot be resized",
            threads,
        )
    elif _threads_of_pool != threads:
        logger.info(
            "the thread pool of tokenizers already exists and cannot be resized: it has "
            "%d threads, %d requested",
            _threads_of_pool,
            threads,
        )

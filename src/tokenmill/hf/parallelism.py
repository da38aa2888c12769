"""Where a tokenizer runs: in this process on the engine's own threads, or in worker processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.errors import EngineError
from tokenmill.hf.log import logger

T = TypeVar("T")

THREAD_VARIABLES = ("RAYON_RS_NUM_THREADS", "RAYON_NUM_THREADS")
PARTS_PER_PROCESS = 4
"""Small parts even out what processes have to do."""

_PID_OF_IMPORT = os.getpid()

_threads_of_pool: int | None = None
"""What the pool of `tokenizers` was asked for in this process, as far as this package knows."""


@dataclass(frozen=True, slots=True)
class Parallelism:
    """What the log calls the performance configuration."""

    num_proc: int
    is_slow: bool

    @property
    def uses_processes(self) -> bool:
        """Whether workers encode; one process is the calling one."""
        return self.num_proc > 1

    def describe(self, batch_size: int) -> str:
        """The line for the log."""
        line = f"Performance configuration: batch_size={batch_size}"
        if self.is_slow or self.uses_processes:
            return f"{line}, num_proc={self.num_proc}, parallelism=python_multiprocessing"
        return f"{line}, parallelism=fast_tokenizer_internal"


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def thread_environment(parallelism: Parallelism) -> Iterator[None]:
    """Variables that Rust tokenizers read, for one run; afterwards they are what they were.

    A number of threads that the user has set in `RAYON_NUM_THREADS` is kept.
    """
    given = os.environ.get(THREAD_VARIABLES[1], "")
    threads = int(given) if given.isdecimal() and int(given) else usable_cores()
    threads = 1 if parallelism.uses_processes or _is_worker() else threads
    values = dict.fromkeys(THREAD_VARIABLES, str(threads))
    values["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
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


def _is_worker() -> bool:
    """Whether this process is one of several. In a forked one the pool's threads do not exist."""
    return multiprocessing.parent_process() is not None or os.getpid() != _PID_OF_IMPORT


def _tell_of_pool(threads: int) -> None:
    global _threads_of_pool
    if _threads_of_pool is None:
        _threads_of_pool = threads
        logger.debug(
            "%d threads are asked for; where tokenizers has already encoded in this process, its "
            "thread pool exists and cannot be resized",
            threads,
        )
    elif _threads_of_pool != threads:
        logger.info(
            "the thread pool of tokenizers already exists and cannot be resized: it was made for "
            "%d threads, and %d are wanted now",
            _threads_of_pool,
            threads,
        )


class WorkerPool:
    """Forked processes that call methods of one object, each on a part of a batch.

    Forked, because an object of the user's often cannot be pickled, and its module not be imported.
    """

    def __init__(self, owner: object, num_proc: int) -> None:
        self.num_proc = num_proc
        self._pid = os.getpid()
        self._executor = ProcessPoolExecutor(
            num_proc, multiprocessing.get_context("fork"), _install, (owner,)
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of any thread. Ours start later; those of libraries are not used.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            self._executor.submit(os.getpid).result()

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made here: a forked copy of it answers nobody."""
        return self._pid == os.getpid()

    def map(self, function: Callable[[Any, list[str]], T], texts: list[str]) -> list[T]:
        """What `function(owner, part)` returns for the parts of `texts`, in their order.

        Raises:
            EngineError: a process died.
        """
        parts = _parts(texts, self.num_proc * PARTS_PER_PROCESS)
        try:
            return list(self._executor.map(_call, [function] * len(parts), parts))
        except BrokenProcessPool as error:
            raise EngineError(
                "a worker process died",
                why="most often for want of memory",
                hint="lower num_proc or batch_size",
            ) from error

    def close(self) -> None:
        """End the processes."""
        self._executor.shutdown(cancel_futures=True)


_owner: Any = None


def _install(owner: object) -> None:
    global _owner
    _owner = owner


def _call(function: Callable[[Any, list[str]], T], texts: list[str]) -> T:
    return function(_owner, texts)


def _parts(texts: list[str], count: int) -> list[list[str]]:
    """Runs of texts with about as many characters each; one empty run where there are no texts."""
    ends = offsets_from_lengths([len(text) for text in texts])
    wanted = np.linspace(0, ends[-1], count + 1)[1:-1]
    cuts = [0, *np.searchsorted(ends, wanted).tolist(), len(texts)]
    return [texts[a:b] for a, b in itertools.pairwise(cuts) if a < b] or [[]]

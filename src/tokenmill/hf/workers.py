"""Forked worker processes that call functions of one object on parts of a batch."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.encode.boundaries import offsets_from_lengths

T = TypeVar("T")

PARTS_PER_PROCESS = 4
"""Several small parts per process balance the load."""


class WorkerDiedError(EngineError):
    """A worker process ended before its work was done."""


class Workers:
    """Holds the worker processes of an object; every process has its own, or none.

    A forked copy of a pool answers nobody, so pools are kept by the process that made them.
    """

    def __init__(self) -> None:
        self._pools: dict[int, WorkerPool] = {}

    @property
    def pool(self) -> WorkerPool | None:
        """The workers of this process, if there are any."""
        return self._pools.get(os.getpid())

    @contextmanager
    def during_run(self, owner: object, num_proc: int) -> Iterator[None]:
        """Fork workers with the current state of the owner for one run; none if `num_proc` is 1."""
        self.end()
        self.begin(owner, num_proc)
        try:
            yield
        finally:
            self.end()

    def begin(self, owner: object, num_proc: int) -> None:
        """Fork workers until `end`, unless they exist. Daemon processes cannot have workers."""
        if num_proc > 1 and self.pool is None and not multiprocessing.current_process().daemon:
            self._pools[os.getpid()] = WorkerPool(owner, num_proc)

    def end(self) -> None:
        """End the workers of this process."""
        if pool := self._pools.pop(os.getpid(), None):
            pool.close()

    def __reduce__(self) -> tuple[type[Workers], tuple[()]]:
        return Workers, ()


class WorkerPool:
    """The processes.

    Forked, because an object of the user's often cannot be pickled, and its module not be imported.
    """

    def __init__(self, owner: object, num_proc: int) -> None:
        self._num_parts = num_proc * PARTS_PER_PROCESS
        self._executor = ProcessPoolExecutor(
            num_proc, multiprocessing.get_context("fork"), _install, (owner,)
        )
        with warnings.catch_warnings():
            # Python 3.12 warns about threads. Ours start later; workers use none of libraries.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            self._executor.submit(os.getpid).result()

    def map(self, function: Callable[[Any, list[str]], T], texts: list[str]) -> list[T]:
        """Return the results of `function(owner, part)` for the parts of `texts`, in order.

        Raises:
            WorkerDiedError: a process died.
        """
        parts = _parts(texts, self._num_parts)
        try:
            return list(self._executor.map(_call, [function] * len(parts), parts))
        except BrokenProcessPool as error:
            raise WorkerDiedError(
                "a worker process died",
                why="usually because the machine ran out of memory",
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
    """Split texts into runs of about equal size in characters; without texts, one empty run."""
    ends = offsets_from_lengths([len(text) for text in texts])
    wanted = np.linspace(0, ends[-1], count + 1)[1:-1]
    cuts = [0, *np.searchsorted(ends, wanted).tolist(), len(texts)]
    return [texts[a:b] for a, b in itertools.pairwise(cuts) if a < b] or [[]]

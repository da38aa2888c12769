"""Where a tokenizer runs: on the engine's threads in this process, or in forked processes."""

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
from tokenmill.run.machine import usable_cores

T = TypeVar("T")

PARTS_PER_PROCESS = 4
"""Several small parts per process balance the load."""
THREAD_VARIABLES = ("RAYON_NUM_THREADS", "RAYON_RS_NUM_THREADS")

_PID_OF_IMPORT = os.getpid()


class WorkerDiedError(EngineError):
    """A worker process ended before its work was done."""


class Workers:
    """Holds the worker processes of an object; every process has its own, or none.

    They are forked, because an object of the user's often cannot be pickled, and its module not be
    imported. A forked copy of a pool answers nobody, so pools are kept by the process that made
    them.
    """

    def __init__(self) -> None:
        self._pools: dict[int, tuple[ProcessPoolExecutor, int]] = {}

    def __reduce__(self) -> tuple[type[Workers], tuple[()]]:
        return Workers, ()

    @property
    def exist(self) -> bool:
        """Whether this process has workers."""
        return os.getpid() in self._pools

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
        if num_proc == 1 or self.exist or multiprocessing.current_process().daemon:
            return
        context = multiprocessing.get_context("fork")
        pool = ProcessPoolExecutor(num_proc, context, _install, (owner,))
        with warnings.catch_warnings():
            # Python 3.12 warns about threads. Ours start later; workers use none of libraries.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            pool.submit(os.getpid).result()
        self._pools[os.getpid()] = pool, num_proc * PARTS_PER_PROCESS

    def end(self) -> None:
        """End the workers of this process."""
        if self.exist:
            self._pools.pop(os.getpid())[0].shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any, list[str]], T], texts: list[str]) -> list[T]:
        """Return the results of `function(owner, part)` for the parts of `texts`, in order.

        Raises:
            WorkerDiedError: a process died.
        """
        pool, num_parts = self._pools[os.getpid()]
        parts = _parts(texts, num_parts)
        try:
            return list(pool.map(_call, [function] * len(parts), parts))
        except BrokenProcessPool as error:
            raise WorkerDiedError(
                "a worker process died",
                why="usually because the machine ran out of memory",
                hint="lower num_proc or batch_size",
            ) from error


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


def described(num_proc: int, *, is_slow: bool) -> str:
    """How many processes encode, for the log."""
    if num_proc > 1:
        return f"num_proc={num_proc}, parallelism=python_multiprocessing"
    return f"{'num_proc=1, ' * is_slow}parallelism=" + (
        "python_single_process" if is_slow else "fast_tokenizer_internal"
    )


@contextmanager
def thread_environment(num_proc: int) -> Iterator[None]:
    """Set the environment variables of Rust tokenizers for one run, and restore them.

    A number of threads that the user has set is kept; `RAYON_NUM_THREADS` goes first. Workers have
    one thread each, and so have child processes: after a fork, the threads of a pool do not exist.
    """
    is_child = multiprocessing.parent_process() is not None or os.getpid() != _PID_OF_IMPORT
    threads = 1 if num_proc > 1 or is_child else _wanted_threads()
    values = dict.fromkeys(THREAD_VARIABLES, str(threads))
    values["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
    if threads == 1:
        values["FASTOKENS_BPE_THREADS"] = "1"
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _wanted_threads() -> int:
    given = (os.environ.get(name, "") for name in THREAD_VARIABLES)
    return next((int(each) for each in given if each.isdecimal() and int(each)), usable_cores())

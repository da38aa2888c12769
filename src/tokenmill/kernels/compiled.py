"""Decorators and intrinsics for functions that numba compiles on first use and caches on disk.

A compiled function takes numpy arrays and numbers and releases the GIL while it runs. If its result
decides what is written, it computes in integers: equal input gives equal output on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, cast

import numba
from numba.core import event
from numba.core.registry import CPUDispatcher

from tokenmill.kernels.code_cache import CodeCache

P = ParamSpec("P")
R = TypeVar("R")
_njit: Any = numba.njit
"""`numba.njit` without its type stubs, which lack some options."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call."""
    return _compiled(function, "never")


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Inline a small function into the compiled functions that call it.

    The function is compiled again for each call site. With two or more call sites, `inner` compiles
    faster.
    """
    return _compiled(function, "always")


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only compiled functions may call; a call from Python is a TypeError.

    It compiles in half the time: there is no code to convert Python objects, and the cache file of
    the caller contains it. It runs at the same speed, because LLVM inlines small functions.
    """
    made = _njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    made.__class__ = _Inner
    return cast("Callable[P, R]", made)


class _Inner(CPUDispatcher):
    """Refuses calls from Python, which would crash: there is no code for them."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        name = self.py_func.__qualname__
        raise TypeError(f"{name} can be called by compiled functions only; mark it as compiled")


def _compiled(function: Callable[P, R], inline: Literal["never", "always"]) -> Callable[P, R]:
    # These functions are never called from C, so no C wrapper is compiled.
    made = _njit(nogil=True, inline=inline, no_cfunc_wrapper=True)(function)
    made._cache = CodeCache(function)
    return cast("Callable[P, R]", made)


class _FirstCompilation(event.Listener):
    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell, self._told = tell, False

    def on_start(self, _: Any) -> None:
        if not self._told:
            self._told = True
            self._tell()

    def on_end(self, _: Any) -> None:
        """Nothing is told of the end."""


@contextmanager
def telling_of_compilation(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once if anything has to be compiled; what is read from disk does not count."""
    with event.install_listener("numba:compile", _FirstCompilation(tell)):
        yield

"""Functions over arrays, compiled to machine code on first use (numba) and kept on disk after that.

A compiled function takes numpy arrays and numbers, holds no lock while it runs, and computes in
integers wherever its result decides what is written: equal input gives equal output on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function when it is first called."""
    return cast("Callable[P, R]", numba.njit(cache=True, nogil=True)(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """As `compiled`, for small functions that compiled ones call: copied into their callers."""
    return cast("Callable[P, R]", numba.njit(cache=True, nogil=True, inline="always")(function))

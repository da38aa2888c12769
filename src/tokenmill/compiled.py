"""Functions over arrays, compiled to machine code on first use (numba) and kept on disk after that.

A compiled function takes numpy arrays and numbers, holds no lock while it runs, and computes in
integers wherever its result decides what is written: equal input gives equal output on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, cast

import numba
import numpy.typing as npt
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function when it is first called."""
    return _compiled(function, "never")


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """As `compiled`, for small functions that compiled ones call: copied into their callers."""
    return _compiled(function, "always")


def _compiled(function: Callable[P, R], inline: Literal["never", "always"]) -> Callable[P, R]:
    try:
        made = numba.njit(cache=True, nogil=True, inline=inline)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        made = numba.njit(nogil=True, inline=inline)(function)
    return cast("Callable[P, R]", made)


@intrinsic
def _as_pointer(_: Any, address: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@inlined
def mapped_array(address: int, length: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """For compiled functions: `length` values from an address on, of the dtype of `like`.

    A compiled function takes any number of mapped files that way, as a table of addresses.
    Whoever makes the table keeps the files mapped, and bounds are checked before values are read.
    """
    return carray(_as_pointer(address), length, like.dtype)  # type: ignore[call-arg]

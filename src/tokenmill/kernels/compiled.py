"""Decorators and intrinsics for functions that numba compiles on first use and caches on disk.

A compiled function takes numpy arrays and numbers and releases the GIL while it runs. If its result
decides what is written, it computes in integers: equal input gives equal output on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils, event
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

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


@intrinsic
def _as_pointer(_: Any, address: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


def _reader(stored: Any, read: Any) -> Any:
    """Make an intrinsic that loads an integer from an address, and widens it to another type."""

    @intrinsic
    def load(_: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(stored.bitwidth).as_pointer())
            return context.cast(builder, builder.load(pointer, align=1), stored, read)

        return read(address), generate

    return load


@intrinsic
def _prefetch(_: Any, address: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer_type, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer_type, number, number, number])
        insert: Any = cgutils.get_or_insert_function
        prefetch = insert(builder.module, kind, "llvm.prefetch.p0")
        pointer = builder.inttoptr(arguments[0], pointer_type)
        builder.call(prefetch, [pointer, number(0), number(3), number(1)])
        return arguments[0]

    return types.int64(address), generate


@intrinsic
def _folded_product(_: Any, one: Any, other: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        low = builder.trunc(product, ir.IntType(64))
        high = builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))
        return builder.xor(low, high)

    return types.uint64(one, other), generate


@intrinsic
def _trailing_zeros(_: Any, bits: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(bits), generate


# These functions take addresses instead of arrays: counting references to an array would take
# longer than reading a byte. The caller keeps the array alive and checks bounds.

byte_at = cast("Callable[[int], int]", _reader(types.uint8, types.int64))
"""For compiled functions: read the byte at an address."""

int32_at = cast("Callable[[int], int]", _reader(types.int32, types.int64))
"""For compiled functions: read the signed 32-bit integer that starts at any address."""

eight_bytes_at = cast("Callable[[int], np.uint64]", _reader(types.uint64, types.uint64))
"""For compiled functions: read the eight bytes that start at any address."""

prefetch = cast("Callable[[int], int]", _prefetch)
"""For compiled functions: start to load the memory at an address into the processor's cache.

Several prefetches overlap. Any address is safe, because no value is returned.
"""

folded_product = cast("Callable[[np.uint64, np.uint64], np.uint64]", _folded_product)
"""For compiled functions: the upper and lower 64 bits of a 128-bit product, combined by xor."""

trailing_zeros = cast("Callable[[np.uint64], int]", _trailing_zeros)
"""For compiled functions: the index of the lowest set bit, or 64 if no bit is set."""


@inlined
def mapped_array(address: int, length: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """For compiled functions: an array of `length` values at an address, with the dtype of `like`.

    A compiled function can take any number of mapped files this way, as a table of addresses. The
    owner of the table keeps the files mapped, and bounds are checked before values are read.
    """
    return carray(_as_pointer(address), length, like.dtype)  # type: ignore[call-arg]


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

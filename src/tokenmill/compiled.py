"""Decorators and intrinsics for functions that numba compiles on first use and caches on disk.

A compiled function takes numpy arrays and numbers and releases the GIL while it runs. If its result
decides what is written, it computes in integers: equal input gives equal output on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FunctionType
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils, event
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

from tokenmill.code_cache import SafeCache

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
    with suppress(RuntimeError):  # neither the package folder nor the user's cache is writable
        made._cache = SafeCache(function)
    return cast("Callable[P, R]", made)


@intrinsic
def _as_pointer(_: Any, address: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@intrinsic
def _byte_at(_: Any, address: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(address), generate


@intrinsic
def _int32_at(_: Any, address: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.sext(builder.load(pointer), ir.IntType(64))

    return types.int64(address), generate


@intrinsic
def _eight_bytes_at(_: Any, address: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(address), generate


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

byte_at = cast("Callable[[int], int]", _byte_at)
"""For compiled functions: read the byte at an address."""

int32_at = cast("Callable[[int], int]", _int32_at)
"""For compiled functions: read the signed 32-bit integer at an aligned address."""

eight_bytes_at = cast("Callable[[int], np.uint64]", _eight_bytes_at)
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


MOST_STEPS = 1 << 15
"""Passes of a loop that Python makes in less time than it takes to compile the loop."""
_steps_taken: dict[Any, int] = {}


def for_steps(function: Callable[P, R], steps: int) -> Callable[P, R]:
    """A compiled function or, as long as it has little to do, the same lines run by Python.

    `steps` is about how often its inner loop will run; all calls of a process count together, so
    that many small ones are compiled, too. Both ways compute the same numbers. A sum that is too
    large for an array's dtype is 64 bits wide in compiled code, which computes it in that case:
    hence a function that changes its arguments must not exceed their dtypes.
    """
    _steps_taken[function] = _steps_taken.get(function, 0) + steps
    if _steps_taken[function] > MOST_STEPS:
        return function

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with np.errstate(over="raise"):
                return cast("R", _in_python(function)(*args, **kwargs))
        except FloatingPointError:
            return function(*args, **kwargs)

    return run


@cache
def _in_python(function: Any) -> Any:
    """A compiled function's Python function, which calls those of the functions that it names."""
    python = function.py_func
    names = dict(python.__globals__)
    for name in python.__code__.co_names:
        if isinstance(names.get(name), Dispatcher):
            names[name] = _in_python(names[name])
        elif names.get(name) is _trailing_zeros:
            names[name] = _trailing_zeros_in_python
    return FunctionType(python.__code__, names, python.__name__, python.__defaults__)


def _trailing_zeros_in_python(bits: np.uint64) -> int:
    number = int(bits)
    return (number & -number).bit_length() - 1 if number else 64


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

"""Run the lines of compiled functions in Python when that takes less time than compiling them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba.core.dispatcher import Dispatcher

from tokenmill.kernels.memory import (
    eight_bytes_at,
    mapped_array,
    set_eight_bytes,
    trailing_zeros,
)

P = ParamSpec("P")
R = TypeVar("R")

MOST_STEPS = 1 << 15
"""Passes of a loop that Python makes in less time than it takes to compile the loop."""
STEPS_OF_A_COMPILATION = 1 << 20
"""About as many steps as Python takes in the time that it takes to compile a function."""
_steps_taken: dict[Any, int] = {}
_steps_expected = 0


def for_steps(function: Callable[P, R], steps: int) -> Callable[P, R]:
    """Return a compiled function or, as long as it has little to do, its lines run by Python.

    `steps` is about how often its inner loop will run; all calls of a process count together, so
    that many small ones are compiled, too. Both ways compute the same numbers. A sum that is too
    large for an array's dtype is 64 bits wide in compiled code, which computes it in that case,
    from the arguments as they were before.
    """
    return _until(MOST_STEPS, function, steps)


def for_first_steps(function: Callable[P, R], steps: int) -> Callable[P, R]:
    """Return what `for_steps` returns, with Python's lines for longer.

    For functions that will be called many times: the first results come without a compilation,
    which later takes about as long as Python did.
    """
    if _steps_expected > STEPS_OF_A_COMPILATION:
        return function
    return _until(STEPS_OF_A_COMPILATION, function, steps)


def expect_steps(steps: int) -> None:
    """Say how many steps of `for_first_steps` are about to follow; if many, Python takes none."""
    global _steps_expected
    _steps_expected = max(_steps_expected, steps)


def _until(most_steps: int, function: Callable[P, R], steps: int) -> Callable[P, R]:
    _steps_taken[function] = _steps_taken.get(function, 0) + steps
    return function if _steps_taken[function] > most_steps else _python_lines(function)


def _python_lines(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs the lines in Python, or compiled if a number is too large."""

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        before = [(array, array.copy()) for array in _writable_arrays([*args, *kwargs.values()])]
        try:
            with np.errstate(over="raise"):
                return cast("R", _in_python(function)(*args, **kwargs))
        except (FloatingPointError, OverflowError):
            for array, values in before:
                array[...] = values
            return function(*args, **kwargs)

    return run


def _writable_arrays(values: Iterable[Any]) -> Iterator[npt.NDArray[Any]]:
    for value in values:
        if isinstance(value, tuple):
            yield from _writable_arrays(value)
        elif isinstance(value, np.ndarray) and value.flags.writeable:
            yield value


@cache
def _in_python(function: Any) -> Any:
    """Return the Python function of a compiled one, with those of the functions that it names."""
    if function in _FOR_PYTHON:
        return _FOR_PYTHON[function]
    python = function.py_func
    names = dict(python.__globals__)
    for name in python.__code__.co_names:
        found = names.get(name)
        if isinstance(found, Dispatcher | type(trailing_zeros)):
            names[name] = _in_python(found)
    return FunctionType(python.__code__, names, python.__name__, python.__defaults__)


def _trailing_zeros_in_python(bits: np.uint64) -> int:
    number = int(bits)
    return (number & -number).bit_length() - 1 if number else 64


def _eight_bytes_in_python(address: int) -> np.uint64:
    return np.uint64(ctypes.c_uint64.from_address(int(address)).value)


def _set_eight_bytes_in_python(address: int, value: np.uint64) -> int:
    ctypes.c_uint64.from_address(int(address)).value = int(value)
    return address


def _mapped_array_in_python(address: int, length: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    buffer: Any = (ctypes.c_char * (int(length) * like.itemsize)).from_address(int(address))
    return np.frombuffer(buffer, like.dtype)


_FOR_PYTHON: dict[Any, Callable[..., Any]] = {
    trailing_zeros: _trailing_zeros_in_python,
    eight_bytes_at: _eight_bytes_in_python,
    set_eight_bytes: _set_eight_bytes_in_python,
    mapped_array: _mapped_array_in_python,
}

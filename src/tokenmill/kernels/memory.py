"""For compiled functions: read and write at addresses, and read the characters of valid UTF-8.

These functions take addresses instead of arrays: counting references to an array would take longer
than reading a byte. The caller keeps the array alive and checks bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from tokenmill.kernels.compiled import inlined, inner


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
def _set_eight_bytes(_: Any, address: Any, __: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store(arguments[1], pointer, align=1)
        return arguments[0]

    return types.int64(address, types.uint64), generate


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


byte_at = cast("Callable[[int], int]", _reader(types.uint8, types.int64))
"""For compiled functions: read the byte at an address."""

int32_at = cast("Callable[[int], int]", _reader(types.int32, types.int64))
"""For compiled functions: read the signed 32-bit integer that starts at any address."""

eight_bytes_at = cast("Callable[[int], np.uint64]", _reader(types.uint64, types.uint64))
"""For compiled functions: read the eight bytes that start at any address."""

set_eight_bytes = cast("Callable[[int, np.uint64], int]", _set_eight_bytes)
"""For compiled functions: write eight bytes at any address, and return the address."""

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


@inner
def size_at(data: int, place: int) -> int:
    """Return the size in bytes of the character at a place."""
    first = byte_at(data + place)
    return 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)


@inner
def code_at(data: int, place: int) -> int:
    """Return the code point of the character at a place."""
    code = byte_at(data + place)
    if code >= 0xF0:
        high = (code & 0x07) << 18 | (byte_at(data + place + 1) & 0x3F) << 12
        low = (byte_at(data + place + 2) & 0x3F) << 6 | byte_at(data + place + 3) & 0x3F
        code = high | low
    elif code >= 0xE0:
        low = (byte_at(data + place + 1) & 0x3F) << 6 | byte_at(data + place + 2) & 0x3F
        code = (code & 0x0F) << 12 | low
    elif code >= 0xC0:
        code = (code & 0x1F) << 6 | byte_at(data + place + 1) & 0x3F
    return code

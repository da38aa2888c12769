"""Compiled functions that read a character of valid UTF-8 at an address."""

from __future__ import annotations

from tokenmill.kernels.compiled import byte_at, inner


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

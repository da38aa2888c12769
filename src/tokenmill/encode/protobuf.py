"""The parts of the protobuf wire format that SentencePiece files use.

Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

Field = tuple[int, int | float | bytes]
"""A field's number and its value: a varint, a 32-bit float, or bytes."""

VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5


def read_fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of one message, in order.

    Raises:
        ValueError: the bytes are not a valid message.
    """
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == VARINT:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        size = {FIXED_64: 8, FIXED_32: 4}.get(key & 7)
        if key & 7 == BYTES:
            size, place = _varint(data, place)
        if size is None or place + size > len(data):
            raise ValueError(f"invalid protobuf field at byte {place}")
        payload, place = data[place : place + size], place + size
        yield key >> 3, struct.unpack("<f", payload)[0] if key & 7 == FIXED_32 else payload


def write_field(number: int, value: int | float | bytes) -> bytes:
    """Return a field as bytes; an int must not be negative."""
    if isinstance(value, bytes):
        return _write_varint(number << 3 | BYTES) + _write_varint(len(value)) + value
    if isinstance(value, float):
        return _write_varint(number << 3 | FIXED_32) + struct.pack("<f", value)
    return _write_varint(number << 3 | VARINT) + _write_varint(int(value))


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError(f"invalid protobuf number at byte {place}")


def _write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)

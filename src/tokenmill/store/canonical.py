"""JSON files with one canonical form and their own digest inside, so that any change is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
import xxhash

from tokenmill.core.errors import UserError, VerificationError
from tokenmill.store.files import write_atomically

MAX_JSON_BYTES = 1 << 30
RESTORE = "restore the file from a copy, or build the dataset again"

T = TypeVar("T", bound=msgspec.Struct)


def canonical_json(value: object) -> bytes:
    """Encode as canonical JSON: two-space indents, fields in declared order."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def sealed(value: T) -> T:
    """Return `value` with `digest` set to the xxh3-128 of its JSON without a digest."""
    blank = msgspec.structs.replace(value, digest="")
    return msgspec.structs.replace(blank, digest=xxhash.xxh3_128_hexdigest(canonical_json(blank)))


def write_sealed(path: Path, value: T) -> T:
    """Write `value` with its digest atomically, and return it with the digest."""
    written = sealed(value)
    write_atomically(path, canonical_json(written))
    return written


def read_limited(path: Path) -> bytes:
    """Read the bytes of a JSON file, up to a size limit.

    Raises:
        VerificationError: the file is missing or too large.
    """
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            why = f"it has {size} bytes; the limit is {MAX_JSON_BYTES}"
            raise VerificationError("the file is too large to read", where=str(path), why=why)
        return path.read_bytes()
    except FileNotFoundError as error:
        raise VerificationError("a file is missing", where=str(path), hint=RESTORE) from error


class _Version(msgspec.Struct):
    format: str
    format_version: int


def _refuse_newer(data: bytes, path: Path, newest: tuple[str, int]) -> None:
    """Raise a UserError if a JSON file has a later format version than `newest`."""
    try:
        found = msgspec.json.decode(data, type=_Version)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    name, version = newest
    if found.format == name and found.format_version > version:
        what = "dataset" if name == "tokenmill" else "file"
        raise UserError(
            f"the {what} has format version {found.format_version}",
            where=str(path.parent),
            why=f"this tokenmill reads up to version {version}",
            hint="install a newer tokenmill",
        )


def read_sealed(path: Path, kind: type[T], newest: tuple[str, int] | None = None) -> T:
    """Read a file that `write_sealed` wrote.

    `newest` is the name of the format and the latest version that this code can read.

    Raises:
        UserError: the file has a later version of the format.
        VerificationError: the file is missing, or any of its bytes has changed.
    """
    data = read_limited(path)
    try:
        value = unseal(data, kind, str(path))
    except VerificationError:
        if newest is not None:
            _refuse_newer(data, path, newest)
        raise
    if newest is not None and getattr(value, "format_version", 0) > newest[1]:
        _refuse_newer(data, path, newest)
    return value


def unseal(data: bytes, kind: type[T], where: str) -> T:
    """Decode a sealed file.

    Raises:
        VerificationError: a byte has changed; `where` names the file in the message.
    """
    try:
        return _unsealed(data, kind)
    except (ValueError, RecursionError) as error:
        why = str(error)
        raise VerificationError(
            "the file is damaged", where=where, why=why, hint=RESTORE
        ) from error


def _unsealed(data: bytes, kind: type[T]) -> T:
    """Decode a sealed file; its last field is its digest.

    Raises:
        ValueError: the bytes are not canonical, or the digest differs.
    """
    value = msgspec.json.decode(data, type=kind)
    digest: str = value.digest  # type: ignore[attr-defined]
    end = f'"digest": "{digest}"\n}}\n'.encode()
    found = xxhash.xxh3_128(memoryview(data)[: -len(end)])
    found.update(b'"digest": ""\n}\n')
    if found.hexdigest() != digest or canonical_json(value) != data:
        raise ValueError("its content does not match the digest that it contains")
    return value

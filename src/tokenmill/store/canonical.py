"""JSON files with one canonical form and their own digest inside, so that any change is noticed."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path
from typing import Any, TypeVar

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


class _Head(msgspec.Struct):
    """What names the format of a file; other fields are ignored."""

    format: str = ""
    format_version: int = 0


def read_sealed(path: Path, kind: type[T]) -> T:
    """Read a file that `write_sealed` wrote.

    Raises:
        UserError: the file has another version of the format.
        VerificationError: the file is missing, too large, or damaged.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would never end
            raise VerificationError("not a regular file", where=str(path), hint=RESTORE)
        size = status.st_size
        if size > MAX_JSON_BYTES:
            why = f"it has {size} bytes; the limit is {MAX_JSON_BYTES}"
            raise VerificationError("the file is too large to read", where=str(path), why=why)
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise VerificationError("a file is missing", where=str(path), hint=RESTORE) from error
    return unseal(data, kind, str(path))


def unseal(data: bytes, kind: type[T], where: str) -> T:
    """Decode a sealed file. If `kind` has a `format`, format and version must be its defaults.

    Raises:
        UserError: the file has another version of the format; `where` names it in the message.
        VerificationError: a byte has changed, or the file has another format.
    """
    try:
        value = _unsealed(data, kind)
    except (ValueError, RecursionError) as error:
        _refuse_other_version(_head(data), kind, where)
        why = str(error)
        raise VerificationError(
            "the file is damaged", where=where, why=why, hint=RESTORE
        ) from error
    _refuse_other_version(value, kind, where)
    return value


def _head(data: bytes) -> _Head:
    with contextlib.suppress(ValueError, RecursionError):
        return msgspec.json.decode(data, type=_Head)
    return _Head()


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


def _refuse_other_version(found: Any, kind: type[Any], where: str) -> None:
    """Raise an error if a decoded file has another format, or version of it, than `kind`."""
    defaults = zip(kind.__struct_fields__[::-1], kind.__struct_defaults__[::-1], strict=False)
    known = dict(defaults)
    if "format_version" not in known:
        return
    name, version = known["format"], known["format_version"]
    if found.format != name:
        if isinstance(found, kind):
            why = f"its format is {found.format!r}, not {name!r}"
            raise VerificationError("the file has another format", where=where, why=why)
    elif found.format_version != version:
        raise UserError(
            f"the file has format version {found.format_version}",
            where=where,
            why=f"this tokenmill reads version {version} of {name}",
            hint="install a newer tokenmill"
            if found.format_version > version
            else "make it again with this tokenmill",
        )


def wrong_size(where: str, expected: int, found: int | None) -> VerificationError:
    """Return the error for a file with the wrong size; `found` is None if it is missing."""
    return VerificationError(
        "a file of the dataset is missing" if found is None else "a file has the wrong size",
        where=where,
        why=f"it should have {expected} bytes" + ("" if found is None else f", found {found}"),
        hint=RESTORE,
    )

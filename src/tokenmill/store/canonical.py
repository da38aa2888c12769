"""JSON files that cannot change unnoticed: one spelling for one content, with its digest inside."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
import xxhash

from tokenmill.errors import UserError, VerificationError
from tokenmill.store.files import write_atomically

MAX_JSON_BYTES = 1 << 30

T = TypeVar("T", bound=msgspec.Struct)


def canonical_json(value: object) -> bytes:
    """The only spelling that is accepted back: two-space indents, fields in declared order."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def sealed(value: T) -> T:
    """`value` with its field `digest` set to the xxh3-128 of its own JSON without one."""
    blank = msgspec.structs.replace(value, digest="")
    return msgspec.structs.replace(blank, digest=xxhash.xxh3_128_hexdigest(canonical_json(blank)))


def write_sealed(path: Path, value: T) -> T:
    """Write `value` with its digest, atomically; returns it as it was written."""
    written = sealed(value)
    write_atomically(path, canonical_json(written))
    return written


def read_limited(path: Path) -> bytes:
    """The bytes of a JSON file that is not unreasonably large."""
    size = path.stat().st_size
    if size > MAX_JSON_BYTES:
        why = f"{size} bytes are over the limit of {MAX_JSON_BYTES}"
        raise VerificationError("the file is too large to be opened", where=str(path), why=why)
    return path.read_bytes()


class _Version(msgspec.Struct):
    format: str
    format_version: int


def refuse_newer(path: Path, name: str, version: int) -> None:
    """Raise a UserError where a JSON file is of a later version of a format than is known.

    What is damaged passes: `read_sealed` says how.
    """
    try:
        found = msgspec.json.decode(read_limited(path), type=_Version)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if found.format == name and found.format_version > version:
        what = "dataset" if name == "tokenmill" else "file"
        raise UserError(
            f"the {what} has format version {found.format_version}",
            where=str(path.parent),
            why=f"this tokenmill reads up to version {version}",
            hint="pip install --upgrade tokenmill",
        )


def read_sealed(path: Path, kind: type[T]) -> T:
    """Read what `write_sealed` wrote.

    Raises:
        VerificationError: any byte of the file is not as it was written.
    """
    hint = "restore the file from a copy, or build the dataset again"
    data = read_limited(path)
    try:
        value = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise VerificationError(
            "the file is damaged", where=str(path), why=str(error), hint=hint
        ) from error
    if canonical_json(sealed(value)) != data:
        why = "its bytes differ from those that its own digest was made of"
        raise VerificationError("the file is damaged", where=str(path), why=why, hint=hint)
    return value

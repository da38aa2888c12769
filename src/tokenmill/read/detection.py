"""Format and compression of a file, from its first bytes and then from its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

import msgspec

from tokenmill.errors import DataError, UserError
from tokenmill.read.compression import SNIFF_BYTES, compression_of, decompressed

RECORD_SUFFIXES = {".jsonl", ".ndjson", ".json"}
_JSON_OBJECT_STARTS = re.compile(rb'\{\s*"')


def detect(file: BinaryIO, where: str, name: str, file_format: str) -> tuple[str, str]:
    """Format and compression; a format other than "auto" is taken for all that is no table.

    Raises:
        UserError: the file is of a kind that cannot be read.
    """
    head = file.read(SNIFF_BYTES)
    if head.startswith(b"PAR1"):
        return "parquet", "none"
    if head.startswith(b"ARROW1\x00\x00"):
        return "arrow-file", "none"
    if head.startswith(b"\xff\xff\xff\xff") and len(head) >= 8:
        return "arrow-stream", "none"
    compression = compression_of(head)
    if file_format != "auto":
        return file_format, compression
    path = Path(name)
    if compression != "none":
        path = Path(path.stem) if len(path.suffixes) > 1 else path
        file.seek(0)
        try:
            with decompressed(file, where, compression) as stream:
                head = stream.read(SNIFF_BYTES)
        except DataError:
            head = b""  # the unit that reads the file reports the damage
    return _detect_text(where, path, head), compression


def _detect_text(where: str, name: Path, head: bytes) -> str:
    suffix = name.suffix.lower()
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = f"convert it first: iconv -f UTF-16 -t UTF-8 {name}"
        raise UserError("an input is UTF-16, not UTF-8", where=where, hint=hint)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"[") and suffix == ".json":
        why = "it is one JSON array, not one JSON object a line"
        hint = f"convert it first: jq -c '.[]' {name} > {name.stem}.jsonl"
        raise UserError("an input is not JSON Lines", where=where, why=why, hint=hint)
    line, newline, _ = start.partition(b"\n")
    whole = newline or len(head) < SNIFF_BYTES
    is_object = _is_json_object(line) if whole else _JSON_OBJECT_STARTS.match(line)
    if suffix in RECORD_SUFFIXES or is_object:
        return "jsonl"
    if b"\x00" in head and suffix != ".txt":
        why = "it is neither text nor JSON Lines, Parquet or Arrow"
        raise UserError("an input is of an unknown kind", where=where, why=why)
    return "text"


def _is_json_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False

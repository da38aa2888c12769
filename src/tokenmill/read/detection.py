"""Format and compression of a file, from its first bytes and then from its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

import msgspec

from tokenmill.errors import DataError
from tokenmill.read.compression import SNIFF_BYTES, compression_of, decompressed
from tokenmill.read.foreign import LINE_SUFFIXES, foreign_kind, plain_name

_JSON_OBJECT_STARTS = re.compile(rb'\{\s*"')


def detect(file: BinaryIO, where: str, name: str, file_format: str) -> tuple[str, str]:
    """Format and compression; a format other than "auto" is taken for all that is no table.

    The format of a file that cannot be read is its kind in `foreign.ADVICE`. With "text", every
    file is text.
    """
    head = file.read(SNIFF_BYTES)
    compression = compression_of(head)
    if file_format == "text":
        return file_format, compression
    if head.startswith(b"PAR1"):
        return "parquet", "none"
    if head.startswith(b"ARROW1\x00\x00"):
        return "arrow-file", "none"
    if head.startswith(b"\xff\xff\xff\xff") and len(head) >= 8:
        return "arrow-stream", "none"
    if file_format != "auto":
        return file_format, compression
    if compression != "none":
        file.seek(0)
        try:
            with decompressed(file, where, compression) as stream:
                head = stream.read(SNIFF_BYTES)
        except DataError:
            head = b""  # the unit that reads the file reports the damage
        if compression_of(head) != "none":
            return "compressed more than once", compression
    return _detect_plain(plain_name(name), head), compression


def _detect_plain(name: Path, head: bytes) -> str:
    if kind := foreign_kind(head, name):
        return kind
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    line, newline, _ = start.partition(b"\n")
    whole = newline or len(head) < SNIFF_BYTES
    is_object = _is_json_object(line) if whole else _JSON_OBJECT_STARTS.match(line)
    is_records = name.suffix.lower() in (".json", *LINE_SUFFIXES)
    return "jsonl" if is_records or is_object else "text"


def _is_json_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False

"""Detection of the format and compression of a file, from its first bytes, then its name."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from tokenmill.core.errors import DataError
from tokenmill.read.compression import SNIFF_BYTES, compression_of, decompressed
from tokenmill.read.foreign import foreign_kind, plain_name
from tokenmill.read.formats.format import FORMATS

AUTO = "auto"


def format_names() -> tuple[str, ...]:
    """Return the valid values of --format."""
    return (AUTO, *FORMATS.built_in, *FORMATS.registered)


def is_format(name: str) -> bool:
    """Return whether a name is a valid format; packages are only loaded for unknown names."""
    return name == AUTO or name in FORMATS


def detect(file: BinaryIO, where: str, name: str, file_format: str) -> tuple[str, str]:
    """Return the format and the compression; a `file_format` other than "auto" overrides detection.

    Tables are detected even then, except with "text". For a file that cannot be read, the format is
    its kind in `foreign.ADVICE`.
    """
    head = file.read(SNIFF_BYTES)
    compression = compression_of(head)
    if file_format != AUTO and not FORMATS[file_format].holds_records:
        return file_format, compression
    for table in FORMATS.built_in:
        if not FORMATS[table].compressible and FORMATS[table].sniff(head, Path(name)):
            return table, "none"
    if file_format != AUTO:
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
    return _detect_plain(plain_name(name), head, compression != "none"), compression


def _detect_plain(name: Path, head: bytes, is_compressed: bool) -> str:
    kind = foreign_kind(head, name)
    own = (each for each in FORMATS.built_in if FORMATS[each].holds_records)
    for each in () if kind else own:
        if FORMATS[each].compressible and FORMATS[each].sniff(head, name):
            return each
    for other in FORMATS.registered:
        if (FORMATS[other].compressible or not is_compressed) and FORMATS[other].sniff(head, name):
            return other
    return kind or "text"

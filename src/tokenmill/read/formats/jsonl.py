"""JSON Lines.

One record per line, parsed by msgspec. If a key appears twice, the last value wins, and each value
must have the right type. NaN and infinities, raw control characters, lone surrogates, text after
the value and invalid UTF-8 anywhere in the line are rejected. Numbers in fields that are not read
can have any size. A byte order mark at the start of a file and blank lines are counted and skipped.

A block is parsed in one call if that provably gives the same result as parsing line by line:
    every line starts with "{" and ends with "}"   a record cannot span lines, because no JSON
                                                   contains "}" followed by "{"
    as many records as lines                       so each line contains exactly one
    the whole block is valid UTF-8                 needed because the parser skips unread fields
Otherwise every line is parsed alone, and bad ones are rejected with a reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokenmill.core.records import DocumentBatch
from tokenmill.read.blocks import BOM, iter_blocks
from tokenmill.read.compression import SNIFF_BYTES
from tokenmill.read.fields import Fields
from tokenmill.read.foreign import LINE_SUFFIXES
from tokenmill.read.formats.format import Block, ByteFormat, Parse, opened
from tokenmill.read.formats.json_records import (
    PREVIEW_BYTES,
    JsonParser,
    fields_of,
    require_memory,
)

if TYPE_CHECKING:
    from tokenmill.read.source import Source

_OBJECT_START = re.compile(rb'\{\s*"')


class JsonLines(ByteFormat):
    """One JSON object per line."""

    libraries = ("msgspec",)

    def delimiter(self, fields: Fields) -> bytes:
        return b"\n"

    def sniff(self, head: bytes, name: Path) -> bool:
        """Return whether the first line is an object, or the name has a suffix of JSON Lines."""
        line, newline, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
        is_whole = newline or len(head) < SNIFF_BYTES
        is_object = _is_object(line) if is_whole else _OBJECT_START.match(line)
        return bool(is_object) or name.suffix.lower() in (".json", *LINE_SUFFIXES)

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        """Return names and dotted paths of fields in the first records; empty if unreadable."""
        with opened(source) as stream:
            blocks = iter_blocks(stream, 0, None, b"\n", PREVIEW_BYTES, fields.max_record)
            _, first = next(blocks, (0, b""))
        require_memory(len(first))
        return fields_of(first.removeprefix(BOM).splitlines(), fields, source.where)

    def parser(self, fields: Fields) -> Parse:
        parser = JsonParser(fields)

        def parse(block: Block, source: Source) -> DocumentBatch:
            return parser.parse(block.content, block.start, source.index)

        return parse


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False

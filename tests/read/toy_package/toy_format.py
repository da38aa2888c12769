"""A format whose records are neither lines nor rows: netstrings, as in `5:hello,3:you,`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tokenmill.core.records import DocumentBatch, Rejection
from tokenmill.read.compression import damaged
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Block, ByteFormat, Parse
from tokenmill.read.source import Source

HEADER = re.compile(rb"(\d{1,9}):")


class Netstrings(ByteFormat):
    """Every netstring is a document."""

    def sniff(self, head: bytes, name: Path) -> bool:
        return HEADER.match(head) is not None

    def split(
        self, stream: BinaryIO, start: int, stop: int | None, fields: Fields, block_bytes: int
    ) -> Iterator[tuple[int, bytes]]:
        offset, block = 0, b""
        while record := record_of(stream):
            block += record
            if len(block) >= block_bytes:
                yield offset, block
                offset, block = offset + len(block), b""
        if block:
            yield offset, block

    def parser(self, fields: Fields) -> Parse:
        return parse


def record_of(stream: BinaryIO) -> bytes:
    """The next netstring of a stream, b"" at its end."""
    header = b""
    while not header.endswith(b":"):
        if not (byte := stream.read(1)) and not header:
            return b""
        header += byte
        if not byte or not (HEADER.fullmatch(header) or header.isdigit()):
            raise damaged("", f"{header!r} is no size")
    record = header + stream.read(int(header[:-1]) + 1)
    if len(record) != len(header) + int(header[:-1]) + 1 or not record.endswith(b","):
        raise damaged("", "a record has no end")
    return record


def parse(block: Block, source: Source) -> DocumentBatch:
    texts, positions, sizes, rejected = [], [], [], []
    at = 0
    while at < len(block.content):
        header = HEADER.match(block.content, at)
        assert header is not None
        text = block.content[header.end() : header.end() + int(header[1])]
        size = header.end() + len(text) + 1 - at
        try:
            texts.append(text.decode())
            positions.append(block.start + at)
            sizes.append(size)
        except UnicodeDecodeError as error:
            place = block.start + at
            rejected.append(
                Rejection(source.index, place, size, "invalid-utf8", error.reason, text)
            )
        at += size
    return DocumentBatch(
        source.index,
        texts,
        positions=np.array(positions, np.int64),
        record_bytes=np.array(sizes, np.int64),
        rejected=rejected,
    )

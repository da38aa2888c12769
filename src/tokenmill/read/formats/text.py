"""Plain text: one document per file, or several with a separator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from tokenmill.core.records import DocumentBatch
from tokenmill.read.blocks import BOM
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Block, ByteFormat, Extent, Parse, Parts
from tokenmill.read.values import not_utf8

if TYPE_CHECKING:
    from tokenmill.read.source import Source


class Text(ByteFormat):
    """Plain text; a file is one document, unless the fields set a separator."""

    holds_records = False

    def delimiter(self, fields: Fields) -> bytes:
        return (fields.separator or "").encode()

    def sniff(self, head: bytes, name: Path) -> bool:
        """Return True: a file without another format is text."""
        return True

    def reads_whole(self, fields: Fields) -> bool:
        return not fields.separator

    def cut(self, source: Source, fields: Fields, unit_bytes: int) -> Parts | None:
        """Cut a file with a separator into ranges of bytes; a single document cannot be cut."""
        if self.reads_whole(fields):
            return [(Extent(source.index), source.num_bytes)]
        return super().cut(source, fields, unit_bytes)

    def split(
        self, stream: BinaryIO, start: int, stop: int | None, fields: Fields, block_bytes: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of documents, or without a separator the whole file, even if it is empty."""
        blocks = super().split(stream, start, stop, fields, block_bytes)
        return chain([next(blocks, (0, b""))], blocks) if self.reads_whole(fields) else blocks

    def parser(self, fields: Fields) -> Parse:
        def parse(block: Block, source: Source) -> DocumentBatch:
            return parse_text_block(block.content, block.start, source.index, fields)

        return parse


def parse_text_block(block: bytes, offset: int, source: int, fields: Fields) -> DocumentBatch:
    """Return the documents of `block`, which starts at byte `offset` of the source.

    The separator is removed and counts as part of the record before it. Without a separator, the
    block is a whole file and one document, including its last line end.
    """
    separator = (fields.separator or "").encode()
    bom_bytes = len(BOM) if offset == 0 and block.startswith(BOM) else 0
    body = block[bom_bytes:]
    pieces = body.split(separator) if separator else [body]
    is_open = bool(pieces[-1])
    if separator and not is_open:
        pieces.pop()  # the rest belongs to the next block
    closing = len(separator)
    sizes = np.array([len(piece) + closing for piece in pieces], dtype=np.int64)
    if is_open:
        sizes[-1] -= closing
    positions = offset + bom_bytes + np.cumsum(sizes) - sizes
    texts, keep, rejected = [], [], []
    for index, piece in enumerate(pieces):
        problem = fields.too_long(int(sizes[index]))
        if not problem:
            try:
                texts.append(piece.decode())
                keep.append(index)
                continue
            except UnicodeDecodeError as error:
                problem = not_utf8(error, "the document")
        place, size = int(positions[index]), int(sizes[index])
        rejected.append(problem.rejection(source, place, piece, size))
    return DocumentBatch(
        source,
        texts,
        positions=positions[keep],
        record_bytes=sizes[keep],
        rejected=rejected,
        bom_bytes=bom_bytes,
        columns={name: [None] * len(texts) for name in fields.keep},
        no_loss=[[] for _ in texts] if fields.has_no_loss else None,
    )

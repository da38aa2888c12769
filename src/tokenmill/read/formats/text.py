"""Plain text: one document a file, or several with a separator between them."""

from __future__ import annotations

import numpy as np

from tokenmill.read.formats.jsonl import BOM
from tokenmill.records import DocumentBatch, Rejection


def parse_text_block(
    block: bytes, offset: int, source: int, separator: bytes | None
) -> DocumentBatch:
    """The documents of `block`, which starts at byte `offset` of the source.

    The separator is taken off and belongs to the record before it. Without one the block is a
    whole file and one document, its last line end included.
    """
    bom_bytes = len(BOM) if offset == 0 and block.startswith(BOM) else 0
    body = block[bom_bytes:]
    pieces = body.split(separator) if separator else [body]
    is_open = bool(pieces[-1])
    if separator and not is_open:
        pieces.pop()  # what follows the last separator of a block is the next block's
    closing = len(separator or b"")
    sizes = np.array([len(piece) + closing for piece in pieces], dtype=np.int64)
    if is_open:
        sizes[-1] -= closing
    positions = offset + bom_bytes + np.cumsum(sizes) - sizes
    texts, keep, rejected = [], [], []
    for index, piece in enumerate(pieces):
        try:
            texts.append(piece.decode())
            keep.append(index)
        except UnicodeDecodeError as error:
            detail = f"{error.reason} at byte {error.start} of the document"
            place, size = int(positions[index]), int(sizes[index])
            rejected.append(Rejection(source, place, size, "invalid-utf8", detail, piece))
    return DocumentBatch(
        source,
        texts,
        positions=positions[keep],
        record_bytes=sizes[keep],
        rejected=rejected,
        bom_bytes=bom_bytes,
    )

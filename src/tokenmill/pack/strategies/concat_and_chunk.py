"""Concatenate and chunk: documents end to end, cut wherever a sequence is full. Keeps the order.

Sequences of 8 and documents of 6, 7, 2 tokens give [6, 2 of 7] [5 of 7, 2]: padding only in the
last sequence, and about one cut per sequence.
"""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Sequences
from tokenmill.pack.chunking import chunk
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Chunk pieces of any length, in their order."""
    return chunk(pieces, np.zeros(len(pieces), np.bool_), options)


STRATEGY = Strategy(pack, cuts_documents=True)

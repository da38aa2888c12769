"""Best-fit decreasing: longest pieces first, each into the fullest sequence that has room for it.

Sequences of 8 and pieces of 6, 7, 5, 2, 3 tokens give [7] [6 2] [5 3]. Because long documents are
split beforehand, this is the packing of "Fewer Truncations Improve Language Modeling"
(https://arxiv.org/abs/2404.10830): no document that fits in a sequence is cut. With a limit on
segments, it is longest-pack-first histogram packing with "distribute".
"""

from __future__ import annotations

from tokenmill.core.records import Int64Array, Sequences
from tokenmill.pack.histogram import best_fit, pack_in_bulk
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces from the number of pieces of each size."""
    return pack_in_bulk(best_fit, pieces, options)


def count_sequences(piece_sizes: Int64Array, options: PackOptions) -> int:
    """Return the number of sequences for `piece_sizes[s]` pieces of size s."""
    return best_fit(piece_sizes, options.length, options.segment_limit).num_sequences


STRATEGY = Strategy(pack, count_sequences=count_sequences)

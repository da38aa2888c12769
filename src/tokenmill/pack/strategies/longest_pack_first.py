"""Longest-pack-first histogram packing (LPFHP): longest pieces first, each into the least room.

Sequences of 8 and pieces of 6, 7, 5, 2, 3 tokens give [7] [6 2] [5 3]. This is the published
procedure without its option "distribute" (https://arxiv.org/abs/2107.02027): if no open sequence
has room, every piece of that size opens a new one, so three pieces of 2 tokens alone make three
sequences. With "distribute" they make one, and the result equals `best-fit`. Use `best-fit` for the
fewest sequences.
"""

from __future__ import annotations

from tokenmill.core.records import Sequences
from tokenmill.pack.histogram import longest_pack_first, pack_in_bulk
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces from the number of pieces of each size."""
    return pack_in_bulk(longest_pack_first, pieces, options)


STRATEGY = Strategy(pack)

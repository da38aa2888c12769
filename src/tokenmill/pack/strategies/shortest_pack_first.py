"""Shortest-pack-first histogram packing (SPFHP): longest pieces first, each into the most room.

Sequences of 8 and pieces of 6, 7, 5, 2, 1 tokens give [7] [6 1] [5 2]; best fit gives [7 1] [6 2]
[5]. This is the published procedure (https://arxiv.org/abs/2107.02027): if no open sequence has
room, every piece of that size opens a new one, so three pieces of 2 tokens alone make three
sequences. `best-fit` makes one.
"""

from __future__ import annotations

from tokenmill.core.records import Sequences
from tokenmill.pack.histogram import pack_in_bulk, shortest_pack_first
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces from the number of pieces of each size."""
    return pack_in_bulk(shortest_pack_first, pieces, options)


STRATEGY = Strategy(pack)

"""Shortest-pack-first histogram packing (SPFHP): longest pieces first, each where most room is.

Sequences of 8 and pieces of 6, 7, 5, 2, 1 tokens give [7] [6 1] [5 2]; best fit would put the 2
beside the 6 and the 1 beside the 7. The published procedure (https://arxiv.org/abs/2107.02027)
is kept as it is: where no open sequence has room, every piece of that size opens its own, so that
three pieces of 2 tokens alone make three sequences, of which `best-fit` makes one.
"""

from __future__ import annotations

from tokenmill.pack.histogram import pack_in_bulk, shortest_pack_first
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy
from tokenmill.records import Sequences


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces by how many there are of each size."""
    return pack_in_bulk(shortest_pack_first, pieces, options)


STRATEGY = Strategy(pack)

"""Longest-pack-first histogram packing (LPFHP): longest pieces first, each where least room is.

Sequences of 8 and pieces of 6, 7, 5, 2, 3 tokens give [7] [6 2] [5 3]. This is the published
procedure without its option "distribute" (https://arxiv.org/abs/2107.02027): where no open
sequence has room, every piece of that size opens its own, so that three pieces of 2 tokens alone
make three sequences. With "distribute" they make one, and the procedure is `best-fit`, sequence
for sequence: that is the name to ask for where the fewest sequences are wanted.
"""

from __future__ import annotations

from tokenmill.pack.histogram import longest_pack_first, pack_in_bulk
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy
from tokenmill.records import Sequences


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces by how many there are of each size."""
    return pack_in_bulk(longest_pack_first, pieces, options)


STRATEGY = Strategy(pack)

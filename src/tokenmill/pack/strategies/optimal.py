"""Optimal: the fewest sequences that can be found, by column generation. Often provably minimal.

Sequences of 10 and pieces of 5, 4, 4, 3, 2, 2 tokens give [5 3 2] [4 4 2]. Best-fit decreasing
needs three: [5 4] [4 3 2] [2]. `tokenmill.pack.solver.search` describes the search.
"""

from __future__ import annotations

from tokenmill.core.records import Int64Array, Sequences
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategies import best_fit
from tokenmill.pack.strategy import Pieces, Strategy


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces by the best patterns found, or by best-fit if that is as good."""
    from tokenmill.pack.solver.search import fewer_sequences  # needs highspy

    fewer = fewer_sequences(pieces, options.length, options.segment_limit)
    return best_fit.pack(pieces, options) if fewer is None else fewer


def lower_bound(piece_sizes: Int64Array, options: PackOptions) -> int:
    """Return the bound of the linear relaxation, for `piece_sizes[s]` pieces of size s."""
    from tokenmill.pack.solver.column_generation import lp_bound

    return lp_bound(piece_sizes, options.length, options.segment_limit)


STRATEGY = Strategy(pack, lower_bound=lower_bound, needs="highspy", extra="optimal")

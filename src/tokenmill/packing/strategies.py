"""All packing strategies, and what they cannot do with the options.

To add a strategy, write a function here or in a module of its own, and add it to `STRATEGIES` and
its name to `options.Packing`. Loops are in `kernels/`, and decide in integers. The examples below
pack into sequences of 8 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import VerificationError
from tokenmill.core.installed import install_command
from tokenmill.core.options import Problem, Ref
from tokenmill.core.records import Int64Array, Segments, Sequences
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels import cutting, packing
from tokenmill.kernels.interpreted import for_steps
from tokenmill.packing import balanced, histogram
from tokenmill.packing.histogram import longest_first, pack_in_bulk
from tokenmill.packing.options import PackOptions
from tokenmill.packing.rest import REST_OF, RestOf
from tokenmill.packing.strategy import Pieces, Strategy, deal
from tokenmill.packing.streaming import StreamPacker


def best_fit(pieces: Pieces, options: PackOptions) -> Sequences:
    """Best-fit decreasing: longest pieces first, each into the fullest sequence with room for it.

    Pieces of 6, 7, 5, 2, 3 tokens give [7] [6 2] [5 3]. Because long documents are split
    beforehand, this is the packing of "Fewer Truncations Improve Language Modeling"
    (https://arxiv.org/abs/2404.10830): no document that fits in a sequence is cut. With a limit on
    segments, it is longest-pack-first histogram packing with "distribute".
    """
    return pack_in_bulk(histogram.best_fit, pieces, options)


def longest_pack_first(pieces: Pieces, options: PackOptions) -> Sequences:
    """Longest-pack-first histogram packing (LPFHP): longest pieces first, into the least room.

    Pieces of 6, 7, 5, 2, 3 tokens give [7] [6 2] [5 3]. This is the published procedure without its
    option "distribute" (https://arxiv.org/abs/2107.02027): if no open sequence has room, every
    piece of that size opens a new one, so three pieces of 2 tokens alone make three sequences. With
    "distribute" they make one, and the result equals `best_fit`.
    """
    return pack_in_bulk(histogram.longest_pack_first, pieces, options)


def shortest_pack_first(pieces: Pieces, options: PackOptions) -> Sequences:
    """Shortest-pack-first histogram packing (SPFHP): longest pieces first, into the most room.

    Pieces of 6, 7, 5, 2, 1 tokens give [7] [6 1] [5 2]; best fit gives [7 1] [6 2] [5]. Also the
    published procedure without "distribute".
    """
    return pack_in_bulk(histogram.shortest_pack_first, pieces, options)


def first_fit(pieces: Pieces, options: PackOptions) -> Sequences:
    """First-fit decreasing: longest pieces first, each into the first sequence with room for it.

    Pieces of 6, 7, 5, 2, 3 tokens give [7] [6 2] [5 3].
    """
    order = longest_first(pieces.sizes, options.length)
    assign = for_steps(packing.first_fit, 4 * len(pieces))  # each goes down a tree and up again
    return deal(pieces, assign(pieces.sizes, order, options.length, options.segment_limit))


def next_fit(pieces: Pieces, options: PackOptions) -> Sequences:
    """Next-fit: a sequence is closed as soon as the next piece does not fit. Keeps the order.

    Pieces of 6, 7, 2, 5, 3 tokens give [6] [7] [2 5] [3].
    """
    assign = for_steps(packing.next_fit, len(pieces))
    return deal(pieces, assign(pieces.sizes, options.length, options.segment_limit))


def streaming(pieces: Pieces, options: PackOptions) -> Sequences:
    """Best-fit into a bounded number of open sequences, in the order of the documents.

    The same packing as `StreamPacker`, which also takes data without an end.
    """
    packer = StreamPacker(
        options.length, open_sequences=options.open_sequences, max_segments=options.max_segments
    )
    first, last = packer.push(pieces), packer.finish()
    both = Segments.joined([first.segments, last.segments])
    columns = (both.documents, both.starts, both.lengths)
    offsets = np.concatenate([first.offsets, last.offsets[1:] + first.offsets[-1]])
    return Sequences(Segments(*(column.astype(np.int32) for column in columns)), offsets)


def optimal(pieces: Pieces, options: PackOptions) -> Sequences:
    """The fewest sequences that can be found, by column generation. Often provably minimal.

    Sequences of 10 and pieces of 5, 4, 4, 3, 2, 2 tokens give [5 3 2] [4 4 2]. Best-fit decreasing
    needs three: [5 4] [4 3 2] [2]. `tokenmill.packing.optimal` describes the search.
    """
    from tokenmill.packing.optimal import fewer_sequences  # needs highspy

    fewer = fewer_sequences(pieces, options.length, options.segment_limit)
    return best_fit(pieces, options) if fewer is None else fewer


def _optimal_bound(piece_sizes: Int64Array, options: PackOptions) -> int:
    from tokenmill.packing.optimal import lp_bound

    return lp_bound(piece_sizes, options.length, options.segment_limit)


def concat_and_chunk(pieces: Pieces, options: PackOptions) -> Sequences:
    """Documents end to end, cut wherever a sequence is full. Keeps the order.

    Documents of 6, 7, 2 tokens give [6, 2 of 7] [5 of 7, 2]: padding only in the last sequence, and
    about one cut per sequence.
    """
    return _chunked(pieces, np.zeros(len(pieces), np.bool_), options)


def order_preserving(pieces: Pieces, options: PackOptions) -> Sequences:
    """The packing of lowest cost that keeps the order, by dynamic programming.

    Documents are grouped into runs of at most 16 sequences. A run is concatenated and chunked, and
    its last sequence is padded. The cost of a run is its padding plus `cut_cost` for every cut
    inside a document, and runs are chosen for the lowest total cost. Next-fit and concat-and-chunk
    are the two extremes. O(n times the documents of a run).

    For documents of 6, 7, 2, 1: with a cut cost of 1, one run [6, 2 of 7] [5 of 7, 2, 1] costs 1.
    With a cut cost of 9, the runs [6] [7] [2 1] cost 2 + 1 + 5 = 8.
    """
    price = options.length // 4 if options.cut_cost is None else options.cut_cost
    offsets = offsets_from_lengths(pieces.segments.lengths)
    starts_anew = np.zeros(len(pieces) + 1, np.bool_)
    most_in_run = cutting.RUN_SEQUENCES * options.length * len(pieces) // max(int(offsets[-1]), 1)
    run_starts = for_steps(cutting.run_starts, len(pieces) * (most_in_run + 1))
    starts_anew[run_starts(offsets, options.length, price)] = True
    return _chunked(pieces, starts_anew, options)


def _order_preserving_problems(options: PackOptions) -> Iterator[Problem]:
    if options.reserve:
        yield Problem("pack.reserve", "cannot be combined with order-preserving")
    if options.max_segments is not None:
        why = "order-preserving cannot limit segments; next-fit can, and keeps the order"
        yield Problem("pack.max_segments", why)


def _chunked(pieces: Pieces, starts_anew: npt.NDArray[np.bool_], options: PackOptions) -> Sequences:
    """Fill sequences with pieces in order, and cut pieces where a sequence is full.

    Pieces can have any length. A piece starts a new sequence if `starts_anew`, shape (n,), is true.
    """
    lengths = pieces.segments.lengths
    # Bound the number of cuts c. A cut adds a segment, and only full sequences end with a cut. A
    # full sequence of s segments has more than length - reserve * (s + 1) tokens, so for n pieces
    # c * (length - reserve) <= tokens + reserve * (n + c).
    reserve = options.reserve
    places = int(lengths.sum(dtype=np.int64)) + reserve * len(lengths)
    room = len(lengths) + places // (options.length - 2 * reserve) + 1
    of, parts, taken, offsets = for_steps(cutting.chunk, room)(
        lengths, starts_anew, (options.length, reserve), options.segment_limit, room
    )
    whole = pieces.segments.take(of)
    return Sequences(Segments(whole.documents, whole.starts + parts, taken), offsets)


def length_buckets(pieces: Pieces, options: PackOptions) -> Sequences:
    """Power-of-two length buckets: every sequence is one segment, and sequences vary in length.

    A document is divided into the longest buckets first, as in "Dataset Decomposition"
    (https://arxiv.org/abs/2405.13226). With buckets from 2, 21 tokens give [8] [8] [4] [1], the
    last one padded to 2. No token attends to another document, and none is lost. A step with a
    constant number of tokens has more sequences if they are short.
    """
    lengths = pieces.segments.lengths
    longest, smallest = options.length, options.smallest_bucket
    counts = for_steps(cutting.count_buckets, 4 * len(lengths))(lengths, longest, smallest)
    total = int(counts.sum(dtype=np.int64))
    starts, taken = for_steps(cutting.fill_buckets, total)(lengths, total, longest, smallest)
    whole = pieces.segments.take(np.repeat(np.arange(len(lengths)), counts))
    segments = Segments(whole.documents, whole.starts + starts, taken)
    return Sequences(segments, np.arange(len(segments) + 1, dtype=np.int64))


def _buckets(options: PackOptions) -> list[int]:
    smallest = options.smallest_bucket
    return [smallest << k for k in range((options.length // smallest).bit_length())]


def _length_bucket_problems(options: PackOptions) -> Iterator[Problem]:
    if options.reserve:
        yield Problem("pack.reserve", "cannot be combined with length-buckets")
    smallest = options.smallest_bucket
    if smallest & (smallest - 1) or options.length & (options.length - 1):
        rule, length = "must be a power of two, as must {}", Ref("pack.sequence_length")
        yield Problem("pack.smallest_bucket", rule, length)
    elif smallest > options.length:
        yield Problem("pack.smallest_bucket", "is longer than a sequence")


def _balanced_problems(options: PackOptions) -> Iterator[Problem]:
    if options.separate_by is not None:
        yield Problem("pack.separate_by", "cannot be combined with balanced")


STRATEGIES = {
    "best-fit": Strategy(
        best_fit,
        count_sequences=lambda piece_sizes, options: (
            histogram.best_fit(piece_sizes, options.length, options.segment_limit).num_sequences
        ),
    ),
    "first-fit": Strategy(first_fit),
    "next-fit": Strategy(next_fit),
    "order-preserving": Strategy(
        order_preserving, cuts_documents=True, problems=_order_preserving_problems
    ),
    "concat-and-chunk": Strategy(concat_and_chunk, cuts_documents=True),
    "shortest-pack-first": Strategy(shortest_pack_first),
    "longest-pack-first": Strategy(longest_pack_first),
    "optimal": Strategy(optimal, lower_bound=_optimal_bound, needs="highspy", extra="optimal"),
    "length-buckets": Strategy(
        length_buckets,
        cuts_documents=True,
        problems=_length_bucket_problems,
        sequence_lengths=_buckets,
    ),
    "balanced": Strategy(
        balanced.pack, problems=_balanced_problems, group_size=lambda options: options.ranks
    ),
    "streaming": Strategy(streaming),
}
"""By the name in `options.Packing`."""


def contradictions(options: PackOptions) -> Iterator[Problem]:
    """Yield what is wrong with the combination of options, which have a sequence length."""
    if options.sequence_length is None:
        return
    strategy, name = STRATEGIES[options.packing], options.packing
    yield from options.contradictions()
    if strategy.cuts_documents:
        if options.at_cuts != "nothing":
            yield Problem(
                "pack.at_cuts", f"{name} cuts documents anywhere and adds no tokens there"
            )
        if options.long_documents not in ("split", "keep-start", "keep-end", "drop"):
            yield Problem("pack.long_documents", f"{name} cuts documents where a sequence is full")
        if options.segment_multiple > 1:
            yield Problem("pack.segment_multiple", f"{name} cannot pad segments")
    yield from strategy.problems(options)


def objections(options: PackOptions) -> Iterator[Problem]:
    """Yield why no plan can be made: contradictions, or a package that is not installed."""
    yield from contradictions(options)
    strategy = STRATEGIES[options.packing]
    if options.sequence_length is None or strategy.needs is None:
        return
    if find_spec(strategy.needs) is None:
        needed = (strategy.extra, install_command(strategy.extra))
        yield Problem("pack.packing", "{} needs the extra {}: {}", options.packing, *needed)


def options_of_plan(values: dict[str, Any], where: str) -> PackOptions:
    """Return the options of a stored plan.

    Raises:
        VerificationError: they are not valid options of a plan.
    """
    try:
        if REST_OF in values:
            msgspec.convert(values[REST_OF], RestOf)
            values = {name: value for name, value in values.items() if name != REST_OF}
        options = msgspec.convert(values, PackOptions)
    except msgspec.ValidationError as error:
        why = f"options: {error}"
    else:
        problems = list(contradictions(options))
        if options.sequence_length is not None and not problems:
            return options
        why = "; ".join(map(str, problems)) or "options: no sequence length"
    hint = "make the plan again: tokenmill pack --overwrite"
    raise VerificationError("a plan is damaged", where=where, why=why, hint=hint)

"""One window from lengths to figures: all strategies and policies, recounted token by token."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from packing_kit import (
    CUTTING,
    KEEPING_ORDER,
    NAMES,
    figures_for,
    pack_documents,
    shown,
    window_of,
)
from tokenmill.core.errors import InternalError
from tokenmill.core.records import Segments, Sequences
from tokenmill.packing.figures import Ledger, Totals
from tokenmill.packing.long_documents import Boundaries
from tokenmill.packing.options import MIN_SEQUENCE_LENGTH, PackOptions
from tokenmill.packing.strategies import contradictions
from tokenmill.packing.window import PackedWindow, Window, pack_window

SPLITTING = ("split", "split-at-boundary", "sliding-window")
REASONS = {
    "keep-start": "end removed",
    "keep-end": "beginning removed",
    "keep-both-ends": "middle removed",
    "drop": "dropped",
}


Rows = list[list[tuple[int, int, int]]]


@dataclass(frozen=True)
class Case:
    lengths: list[int]
    chosen: list[int]
    kinds: list[int] | None
    options: PackOptions

    def window(self) -> Window:
        boundaries = None
        if self.options.long_documents == "split-at-boundary":  # after every third token or so
            boundaries = Boundaries(
                lambda document: (np.arange(self.lengths[document]) * 7 + document) % 10,
                np.arange(10) % 3 == 0,
                np.arange(10) == 1,
                np.arange(10) == 8,
            )
        return window_of(self.lengths, self.chosen, self.kinds, boundaries=boundaries)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    packing = draw(st.sampled_from(NAMES))
    power = st.sampled_from([1, 2, 4, 8, 16, 32])
    least = MIN_SEQUENCE_LENGTH if packing == "streaming" else 1  # its packer is public
    length = draw(power if packing == "length-buckets" else st.integers(least, 40))
    options = PackOptions(
        sequence_length=length,
        packing=packing,  # type: ignore[arg-type]
        long_documents=draw(st.sampled_from([*SPLITTING, *REASONS])),
        start_share=draw(st.sampled_from([0.5, 0.0, 1.0, 0.3])),
        overlap=draw(st.just(0) | st.integers(0, length)),
        slack=draw(st.none() | st.integers(1, length)),
        at_cuts=draw(st.sampled_from(["nothing", "bos", "eos", "bos-and-eos"])),
        max_segments=draw(st.none() | st.integers(1, 6)),
        segment_multiple=draw(st.sampled_from([1, 1, 2, 4])),
        sequence_multiple=draw(st.sampled_from([1, 1, 8])),
        smallest_bucket=draw(power) if packing == "length-buckets" else 256,
        cut_cost=draw(st.none() | st.integers(0, 50)),
        open_sequences=draw(st.integers(1, 5)),
        ranks=draw(st.integers(1, 4)),
    )
    options = _made_to_fit(options)
    assume(not list(map(str, contradictions(options))))
    size = draw(
        st.sampled_from(
            [
                st.integers(1, length),
                st.integers(1, 4 * length),
                st.just(length),
                st.integers(length + 1, 3 * length + 1),
                st.just(1),
            ]
        )
    )
    lengths = draw(st.lists(size, max_size=25))
    documents = list(range(len(lengths)))
    chosen = documents
    if documents and draw(st.booleans()):
        chosen = sorted(draw(st.lists(st.sampled_from(documents), max_size=30)))
    kinds = None
    if draw(st.booleans()):
        kinds = [draw(st.integers(0, 2)) for _ in documents]
    return Case(lengths, chosen, kinds, options)


def _made_to_fit(options: PackOptions) -> PackOptions:
    """Drop what does not go with the strategy or the policy, which most cases would have."""
    changes: dict[str, object] = {}
    if options.packing in CUTTING:
        changes |= {"at_cuts": "nothing", "segment_multiple": 1}
        if options.long_documents not in ("split", "keep-start", "keep-end", "drop"):
            changes["long_documents"] = "split"
    if options.packing == "order-preserving":
        changes["max_segments"] = None
    if changes.get("long_documents", options.long_documents) != "sliding-window":
        changes["overlap"] = 0
    length = options.length
    changes.setdefault("segment_multiple", math.gcd(options.segment_multiple, length))
    return msgspec.structs.replace(options, **changes)


def inserted_at_cuts(options: PackOptions) -> tuple[int, int]:
    """Tokens that stand for what is missing before and behind a segment."""
    if options.long_documents == "keep-both-ends":
        return 0, 0
    bos = {"bos": 1, "bos-and-eos": 1}
    eos = {"eos": 1, "bos-and-eos": 1}
    return bos.get(options.at_cuts, 0), eos.get(options.at_cuts, 0)


def expected_tokens(length: int, options: PackOptions) -> list[int]:
    """The tokens of a document that are packed, in order; overlap stands there twice."""
    room = options.length
    if length <= room or options.long_documents in ("split", "split-at-boundary"):
        return list(range(length))
    bos, eos = inserted_at_cuts(options)
    if options.long_documents == "keep-start":
        return list(range(room - eos))
    if options.long_documents == "keep-end":
        return list(range(length - room + bos, length))
    if options.long_documents == "keep-both-ends":
        head = math.ceil(Fraction(str(options.start_share)) * room)
        return [*range(head), *range(length - room + head, length)]
    if options.long_documents == "drop":
        return []
    tokens: list[int] = []
    start, own = 0, 0
    while length - start > room - own:
        stop = start + room - own - eos
        tokens += range(start, stop)
        start, own = stop - options.overlap, bos
    return [*tokens, *range(start, length)]


def row_of(size: int, options: PackOptions) -> int:
    """Tokens of the row of a sequence of `size` tokens, with its padding."""
    row = options.length
    if options.packing == "length-buckets":
        row = options.smallest_bucket
        while row < size:
            row *= 2
    return math.ceil(row / options.sequence_multiple) * options.sequence_multiple


def check_order(case: Case, order: list[int], sequences: Rows) -> None:
    """Sequences follow their first pieces, and pieces of a sequence their documents."""
    if len(set(order)) < len(order) or case.options.packing in ("balanced", "streaming"):
        return
    places = {document: place for place, document in enumerate(order)}
    firsts = [(places[row[0][0]], row[0][1]) for row in sequences]
    assert firsts == sorted(firsts)
    for row in sequences:
        in_row = [(places[document], start) for document, start, _ in row]
        assert in_row == sorted(in_row)


def size_of(row: list[tuple[int, int, int]], case: Case) -> int:
    """Tokens of a sequence, with those set at cuts and with segments rounded up."""
    size = 0
    for document, start, length in row:
        own = length + set_beside(start, start + length, case.lengths[document], case.options)
        size += math.ceil(own / case.options.segment_multiple) * case.options.segment_multiple
    return size


def set_beside(start: int, stop: int, length: int, options: PackOptions) -> int:
    """Tokens set before and behind a segment of a document of `length` tokens."""
    bos, eos = inserted_at_cuts(options)
    return (bos if start > 0 else 0) + (eos if stop < length else 0)


def recounted(case: Case, sequences: Rows, kept: dict[int, list[int]]) -> Totals:
    """The sums of a plan, from what it consists of."""
    options, lengths = case.options, case.lengths
    segments = [segment for row in sequences for segment in row]
    tokens = sum(length for _, _, length in segments)
    rows = sum(row_of(size_of(row, case), options) for row in sequences)
    inserted = sum(
        set_beside(start, start + length, lengths[document], options)
        for document, start, length in segments
    )
    beginnings_cut = sum(
        start == kept[document][0] and start + length <= kept[document][-1]
        for document, start, length in segments
    )
    unavoidable = sum(math.ceil(lengths[document] / options.length) - 1 for document in case.chosen)
    num_packed = sum(1 for document in case.chosen if kept[document])
    removes_middle = options.long_documents == "keep-both-ends"
    splits = options.long_documents in SPLITTING
    once = sum(len(set(kept[document])) for document in case.chosen)
    return Totals(
        documents=len(case.chosen),
        tokens=sum(lengths[document] for document in case.chosen),
        sequences=len(sequences),
        segments=len(segments),
        tokens_in_sequences=tokens,
        repeated_tokens=tokens - once,
        tokens_set_at_cuts=inserted,
        padding=rows - tokens - inserted,
        row_tokens=rows,
        documents_cut=0 if removes_middle else beginnings_cut,
        cuts=0 if removes_middle else len(segments) - num_packed,
        unavoidable_cuts=unavoidable if splits else 0,
        most_segments=max((len(row) for row in sequences), default=0),
        attention_cost=sum(length**2 for _, _, length in segments),
    )


@settings(max_examples=400, deadline=None)
@given(cases())
@example(Case([], [], None, PackOptions(sequence_length=8)))
@example(Case([5, 3], [], [0, 1], PackOptions(sequence_length=8, packing="balanced")))
@example(Case([9] * 3, [0, 1, 2], [1, 0, 1], PackOptions(sequence_length=8, long_documents="drop")))
def test_every_token_is_in_a_sequence_or_in_the_books(case: Case) -> None:
    check_the_books(case)


def check_the_books(case: Case) -> None:
    """Each token is where the options want it, and each that is left out is counted."""
    options, lengths = case.options, case.lengths
    packed = pack_window(case.window(), options)
    sequences = shown(packed.sequences)
    order = case.chosen
    if case.kinds is not None:
        kinds = case.kinds
        order = sorted(order, key=lambda document: kinds[document])
        assert all(len({kinds[document] for document, _, _ in row}) == 1 for row in sequences)

    kept = {document: expected_tokens(lengths[document], options) for document in order}
    wanted = [(document, token) for document in order for token in kept[document]]
    found = [
        (document, token)
        for row in sequences
        for document, start, length in row
        for token in range(start, start + length)
    ]
    assert Counter(found) == Counter(wanted)
    if options.packing in KEEPING_ORDER:
        assert found == wanted
    check_order(case, order, sequences)
    for row in sequences:
        assert 1 <= len(row) <= (options.max_segments or options.length)
        assert all(length > 0 for _, _, length in row)
        assert size_of(row, case) <= options.length

    ledger = Ledger(options)
    ledger.add(packed)
    figures = ledger.figures()
    assert ledger.totals == recounted(case, sequences, kept)
    losing = [i for i in order if lengths[i] > options.length and options.long_documents in REASONS]
    reason = REASONS.get(options.long_documents, "")
    lost = sum(lengths[document] - len(kept[document]) for document in losing)
    assert figures.lost_tokens == ({reason: lost} if losing else {})
    assert figures.lost_documents == ({reason: len(losing)} if losing else {})
    assert figures.avoidable_cuts >= 0
    assert figures.lower_bound is None or figures.lower_bound <= figures.sequences


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 30), max_size=30), st.integers(1, 20), st.integers(1, 5))
def test_one_window_is_planned_as_all_shards_together(
    lengths: list[int], length: int, most: int
) -> None:
    figures = figures_for(lengths, length, max_segments=most)
    assert figures.planned_globally == figures.sequences


def test_figures_of_a_small_plan() -> None:
    figures = figures_for([14, 7, 5, 2, 3], 8, ranks=2)
    assert msgspec.structs.asdict(figures) == {
        "documents": 5,
        "tokens": 31,
        "sequences": 4,
        "segments": 6,
        "tokens_in_sequences": 31,
        "repeated_tokens": 0,
        "tokens_set_at_cuts": 0,
        "padding": 1,
        "row_tokens": 32,
        "documents_cut": 1,
        "cuts": 1,
        "unavoidable_cuts": 1,
        "most_segments": 2,
        "attention_cost": 64 + 40 + 49 + 34,
        "left_out_documents": {},
        "left_out_tokens": {},
        "lost_documents": {},
        "lost_tokens": {},
        # [8] and [6 2]; [7] and [5 3]: 64 and 40, 49 and 34.
        "mean_imbalance": round((64 / 52 + 49 / 41.5) / 2, 6),
        "worst_imbalance": round(64 / 52, 6),
        # Mean lengths are 8, 4, 7, 4.
        "neighbour_length_correlation": round(float(np.corrcoef([8, 4, 7], [4, 7, 4])[0, 1]), 6),
        "neighbour_source_share": 1.0,
        "lower_bound": 4,
        "planned_globally": 4,
    }
    assert figures.fill == 31 / 32
    assert figures.gap == 0
    assert figures.avoidable_cuts == 0


def test_imbalance_is_measured_over_whole_steps() -> None:
    figures = figures_for([8, 4, 6], 8, packing="next-fit", ranks=2)
    assert figures.mean_imbalance == figures.worst_imbalance == 64 / 40
    figures = figures_for([8, 4, 6], 8, packing="next-fit", ranks=4)
    assert (figures.mean_imbalance, figures.worst_imbalance) == (None, None)


def test_rows_of_different_lengths_have_no_bound() -> None:
    figures = figures_for([7, 3], 8, packing="length-buckets", smallest_bucket=1)
    assert (figures.sequences, figures.lower_bound, figures.gap) == (5, None, 0)


def test_figures_of_nothing_are_defined() -> None:
    figures = figures_for([], 8)
    assert (figures.sequences, figures.fill, figures.gap, figures.lower_bound) == (0, 1.0, 0.0, 0)
    assert (figures.mean_imbalance, figures.neighbour_length_correlation) == (None, 0.0)


def test_windows_add_up() -> None:
    options = PackOptions(sequence_length=8, long_documents="keep-start", ranks=1)
    ledger = Ledger(options)
    for lengths in ([9, 3], [12, 12, 5], [1]):
        ledger.add(pack_window(window_of(lengths), options))
    figures = ledger.figures()
    assert (figures.documents, figures.tokens, figures.sequences) == (6, 42, 6)
    assert (figures.tokens_in_sequences, figures.padding) == (33, 15)
    assert (figures.lost_documents, figures.lost_tokens) == ({"end removed": 3}, {"end removed": 9})
    # 8, 8, 8, [3 5], [1] are planned over all windows, and there is no packing with fewer.
    assert (figures.planned_globally, figures.lower_bound) == (5, 5)
    assert figures.gap == pytest.approx(0.2)


def with_segments(packed: PackedWindow, lengths: list[int], offsets: list[int]) -> PackedWindow:
    """The same plan with other sequences of documents 0, 1, 2, ... from their start."""
    documents = np.arange(len(lengths), dtype=np.int32)
    segments = Segments(documents, np.zeros_like(documents), np.array(lengths, np.int32))
    sequences = Sequences(segments, np.array(offsets))
    return PackedWindow(packed.window, sequences, packed.books, packed.piece_sizes)


def test_a_plan_that_misses_a_token_is_not_entered() -> None:
    options = PackOptions(sequence_length=8)
    packed = pack_documents([5, 3, 4], 8)
    ledger = Ledger(options)
    with pytest.raises(InternalError, match="the plan is inconsistent") as raised:
        ledger.add(with_segments(packed, [5, 3, 3], [0, 2, 3]))
    assert "12 tokens to pack, 11 accounted for" in str(raised.value)
    assert ledger.totals == Totals()


def test_cuts_beyond_the_unavoidable_ones_are_told_apart() -> None:
    figures = figures_for([6, 7, 2], 8, packing="concat-and-chunk")
    assert (figures.cuts, figures.unavoidable_cuts, figures.avoidable_cuts) == (1, 0, 1)

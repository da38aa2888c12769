"""The figures of a plan: how good it is, and a check that nothing is missing."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np

from tokenmill.core.errors import InternalError
from tokenmill.core.records import Int64Array
from tokenmill.pack.bounds import least_sequences
from tokenmill.pack.long_documents import SPLITTING, CutBooks
from tokenmill.pack.measure import Measures, OrderMeter, measure
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import load_strategy
from tokenmill.pack.window import PackedWindow, row_format


class Totals(msgspec.Struct, kw_only=True):
    """Sums over all windows. tokens = tokens_in_sequences - repeated_tokens + lost tokens."""

    documents: int = 0
    """Documents chosen to be packed. Repeated documents count each time."""
    tokens: int = 0
    """Tokens of these documents."""
    sequences: int = 0
    segments: int = 0
    tokens_in_sequences: int = 0
    """Tokens of documents in sequences. The overlap of windows counts each time."""
    repeated_tokens: int = 0
    tokens_set_at_cuts: int = 0
    padding: int = 0
    row_tokens: int = 0
    """Tokens in all rows, including padding."""
    documents_cut: int = 0
    cuts: int = 0
    unavoidable_cuts: int = 0
    """Cuts that documents longer than a sequence need at least."""
    most_segments: int = 0
    """Most segments in a sequence."""
    attention_cost: int = 0
    """Sum of squared segment lengths."""

    def add(self, other: Totals) -> None:
        """Add other sums."""
        most = max(self.most_segments, other.most_segments)
        for name in Totals.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.most_segments = most


class Figures(Totals, kw_only=True):
    """The figures of a plan: fill, cuts, losses, and how even its sequences are."""

    left_out_documents: dict[str, int]
    """Documents of the dataset that the plan leaves out, by reason."""
    left_out_tokens: dict[str, int]
    lost_documents: dict[str, int]
    """Documents of the plan that lost some or all of their tokens, by reason."""
    lost_tokens: dict[str, int]
    mean_imbalance: float | None
    """Highest attention cost of a rank divided by the mean, averaged over the steps of the plan in
    its order. None if no window has a complete step."""
    worst_imbalance: float | None
    neighbour_length_correlation: float
    """Correlation of the mean segment lengths of sequences i and i + 1 in the order of the plan."""
    neighbour_source_share: float
    """Share of sequences that begin in the same source as the previous sequence."""
    lower_bound: int | None
    """The fewest sequences that any packing of these pieces needs. None if row lengths vary."""
    planned_globally: int | None
    """Sequences of best-fit with all shards in one window. None if `separate_by` is used."""

    @property
    def fill(self) -> float:
        """Share of row tokens that are not padding."""
        return 1 - self.padding / self.row_tokens if self.row_tokens else 1.0

    @property
    def gap(self) -> float:
        """Sequences beyond the lower bound, as a share of the lower bound."""
        return self.sequences / self.lower_bound - 1 if self.lower_bound else 0.0

    @property
    def avoidable_cuts(self) -> int:
        """Cuts beyond the minimum for documents longer than a sequence."""
        return self.cuts - self.unavoidable_cuts


@dataclass(slots=True)
class Ledger:
    """Adds up the figures of windows, in memory that does not grow with their number."""

    options: PackOptions
    totals: Totals = field(default_factory=Totals)
    books: CutBooks = field(default_factory=CutBooks)
    left_out: CutBooks = field(default_factory=CutBooks)
    order: OrderMeter = field(init=False)
    piece_sizes: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        self.order = OrderMeter(self.options.ranks)
        self.piece_sizes = np.zeros(self.options.length + 1, np.int64)

    def add(self, packed: PackedWindow) -> None:
        """Add a window, after checking that every token is accounted for.

        Raises:
            InternalError: a token is not accounted for, or a sequence is too long.
        """
        measures = measure(packed, self.options)
        totals = _totals(packed, measures, self.options)
        accounted = totals.tokens_in_sequences - totals.repeated_tokens
        accounted += sum(packed.books.lost_tokens.values())
        longest = int(measures.sizes.max(initial=0))
        if accounted != totals.tokens or longest > self.options.length:
            raise InternalError(
                "the plan is inconsistent",
                why=f"{totals.tokens} tokens to pack, {accounted} accounted for; the longest "
                f"sequence has {longest} of {self.options.length} tokens",
                hint="please report this with the options and the document lengths",
            )
        self.totals.add(totals)
        self.books.add(packed.books)
        self.piece_sizes += packed.piece_sizes
        self.order.add(packed, measures.costs)

    def figures(self) -> Figures:
        """Return the figures, with bounds to compare them with."""
        options, order = self.options, self.order
        count_sequences = load_strategy(options.packing).count_sequences
        mean, worst = order.imbalance or (None, None)
        globally = None
        if count_sequences is not None and options.separate_by is None:
            globally = count_sequences(self.piece_sizes, options)
        return Figures(
            **msgspec.structs.asdict(self.totals),
            left_out_documents=self.left_out.lost_documents,
            left_out_tokens=self.left_out.lost_tokens,
            lost_documents=self.books.lost_documents,
            lost_tokens=self.books.lost_tokens,
            mean_imbalance=mean,
            worst_imbalance=worst,
            neighbour_length_correlation=round(order.length_correlation, 6),
            neighbour_source_share=round(order.source_share, 6),
            lower_bound=self._lower_bound(),
            planned_globally=globally,
        )

    def _lower_bound(self) -> int | None:
        options = self.options
        strategy = load_strategy(options.packing)
        if len(strategy.sequence_lengths(options)) > 1:
            return None
        if strategy.cuts_documents:
            return -(-self.totals.tokens_in_sequences // options.length)
        return max(
            least_sequences(self.piece_sizes, options.length),
            -(-int(self.piece_sizes.sum()) // options.segment_limit),
            strategy.lower_bound(self.piece_sizes, options),
        )


def _totals(packed: PackedWindow, measures: Measures, options: PackOptions) -> Totals:
    window, sequences = packed.window, packed.sequences
    chosen = window.lengths[window.chosen].astype(np.int64)
    rows = int(row_format(options, 1).row_lengths_of(measures.sizes).sum())
    unavoidable = 0
    if options.long_documents in SPLITTING:
        unavoidable = int((-(-chosen // options.room) - 1).sum())
    return Totals(
        documents=len(chosen),
        tokens=int(chosen.sum()),
        sequences=len(sequences),
        segments=len(sequences.segments),
        tokens_in_sequences=measures.tokens,
        repeated_tokens=packed.books.repeated_tokens,
        tokens_set_at_cuts=measures.set_at_cuts,
        padding=rows - measures.tokens - measures.set_at_cuts,
        row_tokens=rows,
        documents_cut=measures.documents_cut,
        cuts=measures.cuts,
        unavoidable_cuts=unavoidable,
        most_segments=int(np.diff(sequences.offsets).max(initial=0)),
        attention_cost=(int((measures.costs >> 32).sum()) << 32)
        + int((measures.costs & 0xFFFFFFFF).sum()),  # the sum may need more than 63 bits
    )

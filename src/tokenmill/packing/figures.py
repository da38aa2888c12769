"""The figures of a plan: how good it is, and a check that nothing is missing."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import InternalError
from tokenmill.core.records import Int64Array
from tokenmill.kernels import sequences as kernel
from tokenmill.kernels.interpreted import for_steps
from tokenmill.packing.long_documents import SPLITTING, CutBooks, Places, kept_range, set_at_cuts
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategies import STRATEGIES
from tokenmill.packing.window import PackedWindow, row_format, sums


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
        totals, sizes, costs = _measured(packed, self.options)
        accounted = totals.tokens_in_sequences - totals.repeated_tokens
        accounted += sum(packed.books.lost_tokens.values())
        longest = int(sizes.max(initial=0))
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
        self.order.add(packed, costs)

    def figures(self) -> Figures:
        """Return the figures, with bounds to compare them with."""
        options, order = self.options, self.order
        count_sequences = STRATEGIES[options.packing].count_sequences
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
        strategy = STRATEGIES[options.packing]
        if len(strategy.sequence_lengths(options)) > 1:
            return None
        if strategy.cuts_documents:
            return -(-self.totals.tokens_in_sequences // options.length)
        return max(
            least_sequences(self.piece_sizes, options.length),
            -(-int(self.piece_sizes.sum()) // options.segment_limit),
            strategy.lower_bound(self.piece_sizes, options),
        )


def _measured(packed: PackedWindow, options: PackOptions) -> tuple[Totals, Int64Array, Int64Array]:
    """Return the sums of a window, and the size and the cost of each of its sequences.

    A size is the room in tokens, with tokens added at cuts, reserved positions, and the padding of
    segments. A cost is the sum of squared segment lengths.
    """
    window, sequences, segments = packed.window, packed.sequences, packed.sequences.segments
    bos, eos = set_at_cuts(options)
    places = window.places or Places.whole(window.lengths)
    sizes, costs, counted = for_steps(kernel.measure, len(segments))(
        (segments.documents, segments.starts, segments.lengths),
        sequences.offsets,
        places.ends,
        kept_range(window.lengths, places.starts, places.ends, options),
        (int(bos), int(eos), options.segment_multiple, options.reserve),
    )
    tokens, inserted, documents_cut, cuts = counted.tolist()
    if options.long_documents == "keep-both-ends":  # a gap is removed text, not a cut
        documents_cut = cuts = 0
    chosen = window.lengths[window.chosen].astype(np.int64)
    rows = int(row_format(options, 1).row_lengths_of(sizes).sum())
    unavoidable = 0
    if options.long_documents in SPLITTING:
        unavoidable = int((-(-chosen // options.room) - 1).sum())
    totals = Totals(
        documents=len(chosen) if window.places is None else places.num_documents,
        tokens=int(chosen.sum()),
        sequences=len(sequences),
        segments=len(segments),
        tokens_in_sequences=tokens,
        repeated_tokens=packed.books.repeated_tokens,
        tokens_set_at_cuts=inserted,
        padding=rows - tokens - inserted,
        row_tokens=rows,
        documents_cut=documents_cut,
        cuts=cuts,
        unavoidable_cuts=unavoidable,
        most_segments=int(np.diff(sequences.offsets).max(initial=0)),
        attention_cost=(int((costs >> 32).sum()) << 32)
        + int((costs & 0xFFFFFFFF).sum()),  # the sum may need more than 63 bits
    )
    return totals, sizes, costs


@dataclass(slots=True)
class OrderMeter:
    """Measures how balanced and how similar consecutive sequences are, within windows."""

    ranks: int
    steps: int = 0
    imbalance_sum: float = 0.0
    worst_imbalance: float = 1.0
    same_source: int = 0
    pairs: int = 0
    moments: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(6))
    """n, and the sums of x, y, x x, y y and x y, for mean segment lengths x and y of neighbours."""

    def add(self, packed: PackedWindow, costs: Int64Array) -> None:
        """Add the sequences of a window, in their order."""
        sequences = packed.sequences
        if not len(sequences):
            return
        steps = costs[: len(costs) // self.ranks * self.ranks].reshape(-1, self.ranks)
        imbalance = steps.max(axis=1, initial=1) / np.maximum(steps.mean(axis=1), 1)
        self.steps += len(imbalance)
        self.imbalance_sum += float(imbalance.sum())
        self.worst_imbalance = max(self.worst_imbalance, float(imbalance.max(initial=1)))
        lengths = sequences.segments.lengths
        means = sums(lengths, sequences.offsets) / np.diff(sequences.offsets)
        x, y = means[:-1], means[1:]
        self.moments += [len(x), x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum()]
        if packed.window.sources is not None:
            first = sequences.segments.documents[sequences.offsets[:-1]]
            sources = packed.window.sources[first]
            self.same_source += int((sources[1:] == sources[:-1]).sum())
            self.pairs += len(sources) - 1

    @property
    def imbalance(self) -> tuple[float, float] | None:
        """Return the highest cost of a step over its mean cost, on average and at most.

        Return None if there are no steps.
        """
        if not self.steps:
            return None
        return round(self.imbalance_sum / self.steps, 6), round(self.worst_imbalance, 6)

    @property
    def length_correlation(self) -> float:
        """Return the correlation of neighbours' mean segment lengths; 0 if they do not vary."""
        n, x, y, xx, yy, xy = self.moments.tolist()
        spreads = n * xx - x * x, n * yy - y * y
        if min(spreads[0] / max(n * xx, 1), spreads[1] / max(n * yy, 1)) < 1e-12:  # rounding
            return 0.0
        return float((n * xy - x * y) / np.sqrt(spreads[0] * spreads[1]))

    @property
    def source_share(self) -> float:
        """Return the share of sequences that start in the same source as the previous one."""
        return self.same_source / self.pairs if self.pairs else 1.0


def least_sequences(histogram: Int64Array, length: int) -> int:
    """Return Martello and Toth's lower bound L2 for sequences of `length` tokens, in O(length).

    `histogram` is the number of pieces of each size, shape (length + 1,). For every threshold t,
    each piece over `length` - t and each piece over half a sequence needs its own sequence. Pieces
    from t to a half can only fill the space that the latter leave. S. Martello, P. Toth: Lower
    bounds and reduction procedures for the bin packing problem, 1990.
    """
    sizes = np.arange(length + 1, dtype=np.int64)
    pieces_up_to = np.cumsum(histogram)
    tokens_up_to = np.cumsum(histogram * sizes)
    half = length // 2
    thresholds = np.arange(half + 1)
    huge = pieces_up_to[length] - pieces_up_to[length - thresholds]
    large = pieces_up_to[length - thresholds] - pieces_up_to[half]
    large_tokens = tokens_up_to[length - thresholds] - tokens_up_to[half]
    before = np.concatenate([[0], tokens_up_to])[thresholds]
    middle_tokens = tokens_up_to[half] - before
    surplus = middle_tokens - (large * length - large_tokens)
    bounds = huge + large + np.maximum(0, -(-surplus // length))
    return int(bounds.max(initial=0))

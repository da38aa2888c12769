"""Measure the sequences of a window: sizes, attention costs, cuts, balance, neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import for_steps
from tokenmill.pack.long_documents import kept_range, set_at_cuts
from tokenmill.pack.options import PackOptions
from tokenmill.pack.window import PackedWindow, sums


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of a window, from one pass over its segments."""

    sizes: Int64Array
    """Room used in each sequence, shape (num_sequences,): tokens with those added at cuts, reserved
    positions, and the padding of segments."""
    costs: Int64Array
    """Attention cost of each sequence, shape (num_sequences,): the sum of squared segment
    lengths."""
    tokens: int
    """Tokens of documents. The overlap of windows counts each time."""
    set_at_cuts: int
    documents_cut: int
    cuts: int


def measure(packed: PackedWindow, options: PackOptions) -> Measures:
    """Measure the sequences of a window."""
    segments, window = packed.sequences.segments, packed.window
    bos, eos = set_at_cuts(options)
    measure_all = for_steps(_measure, len(segments))
    sizes, costs, totals = measure_all(
        (segments.documents, segments.starts, segments.lengths),
        packed.sequences.offsets,
        window.lengths,
        kept_range(window.lengths, options),
        (int(bos), int(eos), options.segment_multiple, options.reserve),
    )
    tokens, inserted, documents_cut, cuts = totals.tolist()
    if options.long_documents == "keep-both-ends":  # a gap is removed text, not a cut
        documents_cut = cuts = 0
    return Measures(sizes, costs, tokens, inserted, documents_cut, cuts)


@compiled
def _measure(
    segments: tuple[Int32Array, Int32Array, Int32Array],
    offsets: Int64Array,
    ends: Int32Array,
    kept: tuple[Int32Array, Int32Array],
    rules: tuple[int, int, int, int],
) -> tuple[Int64Array, Int64Array, Int64Array]:
    documents, starts, lengths = segments
    kept_starts, kept_stops = kept
    bos, eos, multiple, reserve = rules
    sizes = np.zeros(len(offsets) - 1, np.int64)
    costs = np.zeros(len(offsets) - 1, np.int64)
    tokens, inserted, documents_cut, cuts = 0, 0, 0, 0
    for sequence in range(len(offsets) - 1):
        for i in range(offsets[sequence], offsets[sequence + 1]):
            document, stop = documents[i], starts[i] + lengths[i]
            more = 0
            if starts[i] > 0:
                more += bos
            if stop < ends[document]:
                more += eos
            if stop < kept_stops[document]:
                cuts += 1
                if starts[i] == kept_starts[document]:
                    documents_cut += 1
            tokens += lengths[i]
            inserted += more
            size = lengths[i] + more + reserve
            sizes[sequence] += (size + multiple - 1) // multiple * multiple
            costs[sequence] += np.int64(lengths[i]) * lengths[i]
    return sizes, costs, np.array([tokens, inserted, documents_cut, cuts], np.int64)


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

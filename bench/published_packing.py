"""Compare published packing figures with the plans of tokenmill.

The data are length histograms of Krell et al. (2021), arXiv 2107.02027, and the lengths of OpenChat
V1 from https://github.com/imoneoi/multipack_sampler. The first difference raises an error.

    python bench/published_packing.py krell2021_length_histograms.json openchat_v1_lengths.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from tokenmill.core.records import Int64Array, Segments
from tokenmill.packing import balanced
from tokenmill.packing.histogram import best_fit, longest_pack_first, shortest_pack_first
from tokenmill.packing.optimal import fewest_sequences, lp_bound
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategy import Pieces

PLANS = {
    "shortest-pack-first": shortest_pack_first,
    "longest-pack-first": longest_pack_first,
    "best-fit": best_fit,
}
LENGTHS = {"wikipedia": 512, "squad_1_1": 384}

# Data, strategy, most segments, sequences, padding in tokens, efficiency in %, packing factor.
TABLE = [
    ("wikipedia", "shortest-pack-first", 1, 16_279_552, 4_170_334_451, "49.9668", "1.00000"),
    ("wikipedia", "shortest-pack-first", 2, 10_101_683, 1_007_265_523, "80.5249", "1.61157"),
    ("wikipedia", "shortest-pack-first", 3, 9_094_695, 491_687_667, "89.4408", "1.79001"),
    ("wikipedia", "shortest-pack-first", 4, 8_658_996, 268_609_779, "93.9412", "1.88007"),
    ("wikipedia", "shortest-pack-first", 6, 8_324_436, 97_315_059, "97.7167", "1.95563"),
    ("wikipedia", "shortest-pack-first", 8, 8_224_673, 46_236_403, "98.9020", "1.97936"),
    ("wikipedia", "shortest-pack-first", 12, 8_166_708, 16_558_323, "99.6040", "1.99340"),
    ("wikipedia", "shortest-pack-first", 16, 8_166_708, 16_558_323, "99.6040", "1.99340"),
    ("wikipedia", "shortest-pack-first", 512, 8_166_708, 16_558_323, "99.6040", "1.99340"),
    ("wikipedia", "longest-pack-first", 1, 16_279_552, 4_170_334_451, "49.9668", "1.00000"),
    ("wikipedia", "longest-pack-first", 4, 8_660_327, None, "93.9268", None),
    ("wikipedia", "longest-pack-first", 6, 8_323_237, None, "97.7308", None),
    ("wikipedia", "longest-pack-first", 8, 8_212_127, None, "99.0531", None),
    ("wikipedia", "longest-pack-first", 12, 8_160_389, 13_322_995, "99.6811", "1.99495"),
    ("wikipedia", "longest-pack-first", 512, 8_147_988, 6_973_683, "99.8328", "1.99798"),
    ("wikipedia", "best-fit", 12, None, None, "99.8129", "1.99758"),
    ("squad_1_1", "shortest-pack-first", 1, 88_641, None, "44.8011", "1.00000"),
    ("squad_1_1", "shortest-pack-first", 2, 45_335, None, "87.5972", "1.95524"),
    ("squad_1_1", "shortest-pack-first", 3, 40_711, 383_545, "97.5466", "2.17732"),
    ("squad_1_1", "shortest-pack-first", 384, 40_711, 383_545, "97.5466", "2.17732"),
    ("squad_1_1", "longest-pack-first", 1, 88_641, None, "44.8011", "1.00000"),
    ("squad_1_1", "longest-pack-first", 2, 45_335, None, "87.5972", "1.95524"),
    ("squad_1_1", "longest-pack-first", 3, 40_711, 383_545, "97.5466", "2.17732"),
    ("squad_1_1", "longest-pack-first", 384, 40_711, 383_545, "97.5466", "2.17732"),
]

# Length, most segments, our most sequences (a few more than found), lower bound. Published are
# 8,147,988 without a limit, 99.75 % with three segments, and 40,711 for the questions of SQuAD.
WIKIPEDIA_AND_SQUAD = [
    (512, 3, 8_143_900, 8_143_829),
    (512, 12, 8_135_750, 8_135_727),
    (512, 512, 8_135_727, 8_135_727),
    (384, 3, 40_198, 40_195),
    (384, 384, 40_198, 40_195),
]


def check_table(histograms: dict[str, Int64Array]) -> None:
    """The tables of Krell et al."""
    for data, name, limit, num_sequences, padding, efficiency, factor in TABLE:
        histogram, length = histograms[data], LENGTHS[data]
        found = PLANS[name](histogram, length, limit).num_sequences
        num_tokens = int(histogram @ np.arange(length + 1))
        assert num_sequences in (None, found)
        assert padding in (None, found * length - num_tokens)
        assert f"{100 * num_tokens / (found * length):.4f}" == efficiency
        assert factor in (None, f"{histogram.sum() / found:.5f}")
    plan = longest_pack_first(histograms["wikipedia"], 512, 512)
    segments = np.zeros(plan.num_sequences, np.int64)
    for _, first, count, repeat in plan.rows.tolist():
        segments[first : first + count] += repeat
    assert segments.max() == 22


def check_optimal(histograms: dict[str, Int64Array]) -> None:
    """The optimal strategy needs no more sequences than any published packer."""
    by_length = {length: histograms[data] for data, length in LENGTHS.items()}
    for length, max_segments, ours, bound in WIKIPEDIA_AND_SQUAD:
        patterns = fewest_sequences(by_length[length], length, max_segments)
        assert patterns is not None
        assert lp_bound(by_length[length], length, max_segments) == bound
        assert bound <= patterns.num_sequences <= ours
        if max_segments == 3 and length == 512:
            tokens = int(by_length[length] @ np.arange(length + 1))
            assert tokens / (length * patterns.num_sequences) >= 0.9975


def check_openchat(lengths: list[int]) -> None:
    """As the table of multipack_sampler: 8 ranks, 16 x 2048 tokens.

    Its L^2 lag of a step is the difference between the most and the least sum of squared lengths
    of a rank; printed are the roots of the mean and of the maximum over steps, there for the mean
    of ten shuffles: 438 and 717 in 37 steps, 98.16 % of the room used.
    """
    length, ranks, count = 16 * 2048, 8, len(lengths)
    sizes = np.array(lengths, np.int32)
    segments = Segments(np.arange(count, dtype=np.int32), np.zeros(count, np.int32), sizes)
    options = PackOptions(sequence_length=length, ranks=ranks)
    sequences = balanced.pack(Pieces(segments, sizes), options)
    squares = sequences.segments.lengths.astype(np.int64) ** 2
    costs = np.add.reduceat(squares, sequences.offsets[:-1]).reshape(-1, ranks)
    lags = costs.max(axis=1) - costs.min(axis=1)
    assert len(costs) == 37
    assert int(sequences.segments.lengths.sum()) == sum(lengths)
    assert round(100 * sum(lengths) / (len(sequences) * length), 2) == 98.16
    assert (round(np.sqrt(lags.mean())), round(np.sqrt(lags.max()))) == (29, 68)


def main() -> None:
    """Check all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("krell", type=Path)
    parser.add_argument("openchat", type=Path)
    options = parser.parse_args()
    counts = json.loads(options.krell.read_bytes())
    histograms = {data: np.array([0, *counts[f"{data}_histogram"]]) for data in LENGTHS}
    check_table(histograms)
    check_optimal(histograms)
    check_openchat(json.loads(options.openchat.read_bytes()))
    print("all published figures are reproduced")


if __name__ == "__main__":
    main()

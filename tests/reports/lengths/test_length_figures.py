"""Figures of a sequence length, by hand for six documents, and against published ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.packing.costs import ModelShape, named_shape
from tokenmill.reports.lengths.advice import recommend
from tokenmill.reports.lengths.counts import Bin, LengthCounts
from tokenmill.reports.lengths.figures import (
    Budget,
    CostFigures,
    RowFigures,
    cost_figures,
    row_figures,
)

SHARED = Path(__file__).resolve().parents[4] / "shared"
TINY = ModelShape(
    "tiny", 4, 2, num_heads=2, num_kv_heads=1, head_size=3, feed_forward_size=10,
    gated=True, vocabulary_size=100, tied=False,
)  # fmt: skip


def counts_of(*lengths: int) -> LengthCounts:
    return LengthCounts.of([np.array(lengths, np.int64)])


SIX = counts_of(2, 3, 3, 4, 8, 20)


def test_six_documents_in_sequences_of_eight() -> None:
    """20 is cut into 8, 8 and 4; the rows are 8 | 8 | 8 | 4 + 4 | 3 + 3 + 2."""
    squares = 3 * 8**2 + 2 * 4**2 + 2 * 3**2 + 2**2
    assert row_figures(SIX, 8) == RowFigures(
        sequence_length=8,
        cut_documents=1,
        cut_share=1 / 6,
        cut_token_share=20 / 40,
        from_start_share=(2 + 3 + 3 + 4 + 8 + 8) / 40,
        sequences=5,
        fill=1.0,
        padded_sequences=8,
        padded_fill=40 / 64,
        attention_share=squares / (5 * 8**2),
    )


def test_six_documents_cost_a_tiny_model() -> None:
    """144 FLOPs a query and key: 12 for each of 2 layers, 2 heads and 3 dimensions."""
    weights = 2 * (2 * 4 * 3 * (2 + 1) + 3 * 4 * 10) + 100 * 4
    numbers_of_a_layer = 2 * 4 + 4 + 6 + 2 * 3 + 6 + 4 + 4 * 10
    assert cost_figures(SIX, row_figures(SIX, 8), TINY, Budget(20, 12_000)) == CostFigures(
        sequence_length=8,
        dense_attention_flops=144 * 5 * 8**2,
        masked_attention_flops=144 * (3 * 64 + 2 * 16 + 2 * 9 + 4),
        matrix_flops=6 * weights * 40,
        activation_bytes=2 * 2 * numbers_of_a_layer * 8,
        score_bytes=2 * 2 * 2 * 8**2,
        checkpointed_bytes=2 * 2 * 4 * 8,
        logit_bytes=4 * 100 * 8,
        kv_cache_bytes=2 * 2 * 2 * 3 * 8,
        batch_rows=2,
        batch_documents=2 * 8 / 5,
        rows_that_fit=2,  # 2,368 of activations and 3,200 of logits
        accumulation_steps=1,
        steps=3,
    )


def test_lengths_by_powers_of_two() -> None:
    assert SIX.bins() == [Bin(2, 3, 3, 8), Bin(4, 7, 1, 4), Bin(8, 15, 1, 8), Bin(16, 31, 1, 20)]
    finely = [(each.low, each.high, each.documents) for each in SIX.bins(per_octave=2)]
    assert finely == [
        *[(2, 2, 1), (3, 3, 2), (4, 5, 1), (6, 7, 0), (8, 10, 1), (11, 15, 0), (16, 22, 1)]
    ]
    assert counts_of(1).bins(per_octave=2) == counts_of(1).bins() == [Bin(1, 1, 1, 1)]


def test_percentiles_are_lengths_that_occur() -> None:
    assert [SIX.percentile(share) for share in (1, 50, 51, 83, 84, 99)] == [2, 3, 4, 8, 20, 20]
    assert [SIX.token_percentile(share) for share in (5, 20, 50, 51)] == [2, 3, 8, 20]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 20))
def test_pieces_are_those_of_cutting_each_document(lengths: list[int], row: int) -> None:
    expected = np.zeros(row + 1, np.int64)
    for length in lengths:
        for start in range(0, length, row):
            expected[min(row, length - start)] += 1
    halves = [np.array(lengths[::2], np.int64), np.array(lengths[1::2], np.int64)]
    assert LengthCounts.of(halves).pieces(row).tolist() == expected.tolist()


def recommended(
    lengths: list[int], counts: LengthCounts, model: str, memory: int | None = None
) -> tuple[int, list[str]]:
    rows = [row_figures(counts, length) for length in lengths]
    shape = named_shape(model)
    costs = [cost_figures(counts, each, shape, Budget(4096, memory)) for each in rows]
    found = recommend(rows, costs, shape)
    return found.sequence_length, found.reasons


def test_the_shortest_length_is_taken_that_cuts_a_twentieth_or_less() -> None:
    """Of 20 documents, one has 3,000 tokens, and two more than 500."""
    counts = counts_of(*[100] * 18, 600, 3000)
    chosen, reasons = recommended([512, 1024, 4096], counts, "7b")
    assert chosen == 1024
    assert reasons == [
        "1,024 is the shortest of these lengths that cuts at most 5% of the documents: it cuts "
        "5.0% of the documents, with 55.6% of the tokens",
        "512 would cut 10.0% of the documents; 52.3% of the tokens would see their document from "
        "its start (63.4% with 1,024); attention would take 0.55 times the FLOPs inside "
        "documents, and 0.46 times over whole rows",
        "4,096 would cut 0.0% of the documents; 100.0% of the tokens would see their document from "
        "its start (63.4% with 1,024); attention would take 2.69 times the FLOPs inside "
        "documents, and 5.33 times over whole rows",
        "with best-fit packing, 12.11% of the rows is padding; with one document per row, 76.0% "
        "is, and there are 3.7 times as many rows",
        "attention inside documents takes 56% of the FLOPs of attention over whole rows",
        "for llama-2-7b, a row needs 5.03 GB for activations; a kernel that stores attention "
        "scores adds 2.15 GB (0.4 times as much), and four times that at twice the length",
        "a batch of 4,096 tokens is 4 rows with 15 documents or parts of them; an epoch has 2 "
        "steps. If you double the length, halve the rows: the tokens and activations of a batch "
        "stay the same, and only attention grows",
    ]


def test_lengths_beyond_the_positions_of_a_model_are_not_recommended() -> None:
    chosen, reasons = recommended([512, 1024, 2048], counts_of(*[1500] * 3), "gpt2")
    assert chosen == 1024
    assert reasons[:2] == [
        "every length considered cuts more than 5% of the documents; 1,024 cuts the fewest: "
        "100.0% of the documents, with 100.0% of the tokens",
        "gpt2 has 1,024 learned positions; longer rows do not fit",
    ]
    chosen, reasons = recommended([2048], counts_of(1500), "gpt2")
    assert (chosen, reasons[1]) == (
        2048,
        "gpt2 has 1,024 learned positions, fewer than the shortest of these lengths; try shorter "
        "ones",
    )


def test_a_length_of_which_no_row_fits_into_the_memory_is_not_recommended() -> None:
    """A row of llama-2-7b takes 2.5 GB of activations and 66 MB of logits for 512 tokens."""
    lengths, counts = [512, 1024, 4096], counts_of(*[100] * 18, 600, 3000)
    assert recommended(lengths, counts, "7b", 6 * 10**9)[0] == 1024
    chosen, reasons = recommended(lengths, counts, "7b", 5 * 10**9)
    assert chosen == 512
    assert reasons[:3] == [
        "every length that fits cuts more than 5% of the documents; 512 cuts the fewest: 10.0% of "
        "the documents, with 66.7% of the tokens",
        "a row of 1,024 tokens needs 5.16 GB, which does not fit into the memory for activations",
        "with best-fit packing, 4.12% of the rows is padding; with one document per row, 59.4% is, "
        "and there are 2.4 times as many rows",
    ]
    chosen, reasons = recommended(lengths, counts, "7b", 10**9)
    assert chosen == 512
    assert reasons[0] == (
        "512 needs the least memory of these lengths: it cuts 10.0% of the documents, with 66.7% "
        "of the tokens"
    )
    assert reasons[-1].startswith("not even one row fits into the memory for activations")


def test_wikipedia_in_rows_of_512_as_published() -> None:
    """Krell et al. (arXiv 2107.02027): half of BERT's tokens are padding, packing doubles them."""
    path = SHARED / "data" / "krell2021_length_histograms.json"
    if not path.is_file():
        pytest.skip("needs shared/data/krell2021_length_histograms.json beside the repository")
    histogram = np.array(json.loads(path.read_text())["wikipedia_histogram"], np.int64)
    counts = LengthCounts.weighted(np.arange(1, 513), histogram)
    found = row_figures(counts, 512)
    assert found.padded_fill == pytest.approx(0.5, abs=0.005)
    assert found.padded_sequences / found.sequences == pytest.approx(2.0, abs=0.01)
    assert found.fill == pytest.approx(0.998, abs=0.003)

"""Strategies beside each other: one bound for all, and a recommendation that can be explained."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokenmill
from tokenmill.packing.comparison import Compared, compare, recommended
from tokenmill.packing.figures import Figures
from tokenmill.packing.options import PackOptions
from tokenmill.store.dataset import Dataset

DATASET = Path(__file__).parents[1] / "golden" / "plans" / "dataset"


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return tokenmill.open(DATASET)


def test_gaps_are_measured_against_one_bound_by_pieces(dataset: Dataset) -> None:
    options = PackOptions(sequence_length=64, smallest_bucket=16, subset="train")
    rows = {row.packing: row for row in compare(dataset, options)}
    assert {row.bound for row in rows.values()} == {44}
    found = {name: rows[name].gap for name in ("optimal", "best-fit", "length-buckets")}
    assert found == {
        "optimal": 0,
        "best-fit": 45 / 44 - 1,
        "length-buckets": rows["length-buckets"].figures.row_tokens / (44 * 64) - 1,
    }


def test_strategies_that_cut_are_measured_against_those_that_do_not(dataset: Dataset) -> None:
    """With few segments allowed, only strategies that cut are above the bound by tokens."""
    options = PackOptions(sequence_length=64, max_segments=1, subset="train")
    rows = compare(dataset, options)
    own = {row.packing: row.figures.lower_bound for row in rows if row.figures is not None}
    assert own["concat-and-chunk"] < own["best-fit"]
    assert {row.bound for row in rows if row.figures is not None} == {own["best-fit"]}


def row(packing: str, row_tokens: int, avoidable: int = 0, lost: int = 0) -> Compared:
    figures = Figures(
        row_tokens=row_tokens,
        cuts=avoidable,
        left_out_documents={},
        left_out_tokens={},
        lost_documents={},
        lost_tokens={"dropped": lost} if lost else {},
        mean_imbalance=None,
        worst_imbalance=None,
        neighbour_length_correlation=0.0,
        neighbour_source_share=1.0,
        lower_bound=None,
        planned_globally=None,
    )
    return Compared(packing, figures, 0.0, "")


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([row("best-fit", 1000), row("concat-and-chunk", 900, avoidable=1)], "best-fit"),
        ([row("best-fit", 1000, lost=5), row("next-fit", 1100, avoidable=1)], "next-fit"),
        ([row("best-fit", 1_001_000), row("optimal", 1_000_000)], "best-fit"),
        ([row("best-fit", 1_001_001), row("optimal", 1_000_000)], "optimal"),
        ([Compared("optimal", None, 0.0, "no"), row("next-fit", 9)], "next-fit"),
    ],
    ids=["no cuts", "no losses", "a thousandth is nothing", "more is something", "able"],
)
def test_a_strategy_is_recommended_that_does_no_harm_with_few_rows(
    rows: list[Compared], name: str
) -> None:
    best = recommended(rows)
    assert best is not None
    assert best.packing == name


def test_nothing_is_recommended_if_no_strategy_is_able() -> None:
    assert recommended([Compared("optimal", None, 0.0, "no")]) is None

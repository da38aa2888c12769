"""PackOptions: what cannot be asked for together, and the numbers that follow from others."""

from __future__ import annotations

from typing import Any

import pytest

from packing_kit import CUTTING
from tokenmill.core.errors import UserError
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategies import contradictions
from tokenmill.packing.streaming import StreamPacker
from tokenmill.run.recipe.checks import make_pack_options


def problems(**options: Any) -> list[str]:
    return list(map(str, contradictions(wanted(**{"smallest_bucket": 2} | options))))


def wanted(**options: Any) -> PackOptions:
    return PackOptions(**{"sequence_length": 8} | options)


@pytest.mark.parametrize(
    ("at_cuts", "expected"),
    [
        ("nothing", []),
        ("bos", []),
        (
            "bos-and-eos",
            ["pack.sequence_length: too short for a token between those added at cuts"],
        ),
    ],
)
def test_tokens_set_at_cuts_must_leave_room(at_cuts: str, expected: list[str]) -> None:
    assert problems(sequence_length=2, at_cuts=at_cuts) == expected
    assert problems(sequence_length=3, at_cuts=at_cuts) == []


def test_a_sequence_of_one_token_leaves_none_to_predict() -> None:
    with pytest.raises(
        UserError, match=r"got 1; must be a whole .*; one token leaves none to pred"
    ):
        make_pack_options({"sequence_length": 1})
    with pytest.raises(UserError, match="got 1; must be 2 or more, because one token leaves none"):
        StreamPacker(1)


@pytest.mark.parametrize(
    ("at_cuts", "room"), [("nothing", 8), ("bos", 7), ("eos", 7), ("bos-and-eos", 6)]
)
def test_windows_must_move_on(at_cuts: str, room: int) -> None:
    window = {"long_documents": "sliding-window", "at_cuts": at_cuts}
    assert problems(**window, overlap=room) == [
        f"pack.overlap: got {room}; must be less than {room}"
    ]
    assert problems(**window, overlap=room - 1) == []


@pytest.mark.parametrize(
    ("options", "objection"),
    [
        ({"cut_cost": 5}, "cut_cost: needs pack.packing order-preserving; it is best-fit"),
        (
            {"smallest_bucket": 2},
            "smallest_bucket: needs pack.packing length-buckets; it is best-fit",
        ),
        (
            {"open_sequences": 9, "packing": "next-fit"},
            "open_sequences: needs pack.packing streaming; it is next-fit",
        ),
        ({"overlap": 1}, "overlap: needs pack.long_documents sliding-window; it is split"),
        (
            {"overlap_in_loss": True, "long_documents": "drop"},
            "overlap_in_loss: needs pack.long_documents sliding-window; it is drop",
        ),
        ({"slack": 2}, "slack: needs pack.long_documents split-at-boundary; it is split"),
        (
            {"split_at": "line"},
            "split_at: needs pack.long_documents split-at-boundary; it is split",
        ),
        (
            {"start_share": 0.1},
            "start_share: needs pack.long_documents keep-both-ends; it is split",
        ),
        (
            {"window": "global", "window_sequences": 5},
            "window_sequences: needs pack.window local; it is global",
        ),
    ],
)
def test_an_option_of_another_strategy_or_policy_is_refused(
    options: dict[str, Any], objection: str
) -> None:
    assert list(map(str, wanted(**options).misplaced())) == [f"pack.{objection}"]


def test_an_option_of_the_chosen_strategy_is_taken_and_so_is_a_default() -> None:
    for options in (
        {"packing": "order-preserving", "cut_cost": 5},
        {"packing": "length-buckets", "smallest_bucket": 2},
        {"long_documents": "sliding-window", "overlap": 1, "overlap_in_loss": True},
        {"smallest_bucket": 256, "open_sequences": 1024, "ranks": 2},
    ):
        assert list(map(str, wanted(**options).misplaced())) == []


def test_options_of_any_strategy_may_be_given_to_compare_them() -> None:
    options = wanted(cut_cost=5, smallest_bucket=2, open_sequences=9)
    assert list(map(str, options.misplaced(to_compare=True))) == []
    assert list(map(str, wanted(overlap=1).misplaced(to_compare=True))) == [
        "pack.overlap: needs pack.long_documents sliding-window; it is split"
    ]


@pytest.mark.parametrize("packing", CUTTING)
def test_strategies_that_cut_anywhere_set_no_tokens_and_pad_no_segments(packing: str) -> None:
    assert problems(packing=packing, at_cuts="eos") == [
        f"pack.at_cuts: {packing} cuts documents anywhere and adds no tokens there"
    ]
    assert problems(packing=packing, segment_multiple=2) == [
        f"pack.segment_multiple: {packing} cannot pad segments"
    ]
    for policy in ("split-at-boundary", "sliding-window", "keep-both-ends"):
        assert problems(packing=packing, long_documents=policy) == [
            f"pack.long_documents: {packing} cuts documents where a sequence is full"
        ]
    for policy in ("split", "keep-start", "keep-end", "drop"):
        assert problems(packing=packing, long_documents=policy) == []


def test_length_buckets_need_powers_of_two() -> None:
    problem = "pack.smallest_bucket: must be a power of two, as must pack.sequence_length"
    assert problems(packing="length-buckets", sequence_length=12) == [problem]
    assert problems(packing="length-buckets", smallest_bucket=3) == [problem]
    assert problems(packing="best-fit", smallest_bucket=3) == []


def test_the_smallest_bucket_is_no_longer_than_a_sequence() -> None:
    assert problems(packing="length-buckets", smallest_bucket=16) == [
        "pack.smallest_bucket: is longer than a sequence"
    ]
    assert problems(packing="length-buckets", smallest_bucket=8) == []


def test_order_preserving_has_no_bound_on_segments() -> None:
    assert problems(packing="order-preserving", max_segments=4) == [
        "pack.max_segments: order-preserving cannot limit segments; next-fit can, and keeps "
        "the order"
    ]
    assert problems(packing="next-fit", max_segments=4) == []


def test_weights_need_the_column_that_they_refer_to() -> None:
    problem = "pack.weight: must be given together with pack.weight_by"
    assert problems(weight=["code=2"]) == [problem]
    assert problems(weight_by="language") == [problem]
    assert problems(weight=["code=2"], weight_by="language") == []


def test_all_problems_are_told_at_once() -> None:
    assert problems(
        packing="concat-and-chunk", at_cuts="bos", segment_multiple=3, weight_by="kind"
    ) == [
        "pack.segment_multiple: got 3; must divide the sequence length 8",
        "pack.weight: must be given together with pack.weight_by",
        "pack.at_cuts: concat-and-chunk cuts documents anywhere and adds no tokens there",
        "pack.segment_multiple: concat-and-chunk cannot pad segments",
    ]

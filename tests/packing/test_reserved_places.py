"""Places that a plan reserves beside the tokens of each segment."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing_kit import NAMES, figures_for, lengths_of, pack_documents
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategies import contradictions

WITHOUT = ("length-buckets", "order-preserving")
"""Strategies that reserve none."""
RESERVING = tuple(name for name in NAMES if name not in WITHOUT)


@pytest.mark.parametrize("packing", RESERVING)
@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=40),
    reserve=st.integers(0, 15),
    max_segments=st.sampled_from([None, 3]),
)
@settings(max_examples=15, deadline=None)
def test_every_segment_has_its_places_and_no_token_is_lost(
    packing: str, lengths: list[int], reserve: int, max_segments: int | None
) -> None:
    packed = pack_documents(
        lengths, 32, packing=packing, reserve=reserve, max_segments=max_segments
    )
    rows = lengths_of(packed.sequences)
    assert max(sum(row) + reserve * len(row) for row in rows) <= 32
    assert sum(map(sum, rows)) == sum(lengths)


@pytest.mark.parametrize("packing", RESERVING)
def test_reserved_places_count_as_padding(packing: str) -> None:
    figures = figures_for([10, 10, 40], 32, packing=packing, reserve=4)
    assert figures.padding == figures.sequences * 32 - 60
    assert figures.lower_bound is not None
    assert figures.sequences >= figures.lower_bound


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"packing": "length-buckets"}, "pack.reserve: cannot be combined with length-buckets"),
        ({"packing": "order-preserving"}, "pack.reserve: cannot be combined with order-preserving"),
        (
            {"long_documents": "keep-both-ends"},
            "pack.reserve: cannot be combined with keep-both-ends",
        ),
        (
            {"sequence_length": 8},
            "pack.reserve: got 4; must be less than half of the sequence length",
        ),
    ],
)
def test_what_reserves_none_is_refused(options: dict[str, object], problem: str) -> None:
    wanted = PackOptions(**{"sequence_length": 512, "reserve": 4, **options})  # type: ignore[arg-type]
    assert list(map(str, contradictions(wanted))) == [problem]


def test_stored_options_are_all_but_an_unused_reserve() -> None:
    options = PackOptions(sequence_length=8)
    assert set(PackOptions.__struct_fields__) - set(options.stored()) == {"reserve"}

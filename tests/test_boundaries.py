"""Offsets arithmetic, against the slow and obvious way of doing it."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import (
    batch_of,
    enclose_documents,
    ends_with,
    join_batches,
    offsets_from_lengths,
    without_ends,
)
from tokenmill.encode.spans import ranges_outside, token_ranges

UINT16, INT32 = np.dtype("<u2"), np.dtype("<i4")
documents_of_ids = st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=5), max_size=8)


def token_batch(documents: list[list[int]]) -> TokenBatch:
    ids = np.array([token for document in documents for token in document], np.uint32)
    return TokenBatch(ids, offsets_from_lengths([len(document) for document in documents]))


@given(st.lists(st.integers(0, 2**40)))
@settings(deadline=None)
def test_offsets_and_lengths_are_each_others_inverse(lengths: list[int]) -> None:
    offsets = offsets_from_lengths(lengths)
    assert offsets.dtype == np.int64
    assert offsets.tolist() == [0, *accumulate(lengths)]
    assert np.diff(offsets).tolist() == lengths


def test_a_prefix_and_an_end_enclose_every_document() -> None:
    ids, lengths = enclose_documents(token_batch([[7, 8], [9]]), (1,), (2,), UINT16)
    assert ids.tolist() == [1, 7, 8, 2, 1, 9, 2]
    assert lengths.tolist() == [4, 3]


@pytest.mark.parametrize("dtype", [UINT16, INT32], ids=str)
@given(documents_of_ids, st.lists(st.integers(0, 2**16 - 1), max_size=3), st.integers(0, 99))
@settings(deadline=None)
def test_enclosing_is_what_a_loop_over_documents_gives(
    dtype: np.dtype[np.integer], documents: list[list[int]], prefix: list[int], eos: int
) -> None:
    ids, lengths = enclose_documents(token_batch(documents), prefix, (eos,), dtype)
    enclosed = [[*prefix, *document, eos] for document in documents]
    assert ids.dtype == dtype
    assert ids.tolist() == [token for document in enclosed for token in document]
    assert lengths.tolist() == [len(document) for document in enclosed]


def test_ids_over_16_bits_keep_their_value_in_32() -> None:
    ids, _ = enclose_documents(token_batch([[2**31 - 1, 70_000]]), (), (65_536,), INT32)
    assert ids.tolist() == [2**31 - 1, 70_000, 65_536]


@given(documents_of_ids, documents_of_ids)
@settings(deadline=None)
def test_joined_batches_split_into_the_same_batches(
    first: list[list[int]], second: list[list[int]]
) -> None:
    joined = join_batches([token_batch(first), token_batch(second)])
    parts = joined.split([len(first), len(second)])
    for part, expected in zip(parts, map(token_batch, (first, second)), strict=True):
        assert part.ids.tolist() == expected.ids.tolist()
        assert part.offsets.tolist() == expected.offsets.tolist()


@given(documents_of_ids)
@settings(deadline=None)
def test_without_empty_keeps_the_documents_that_have_tokens(documents: list[list[int]]) -> None:
    kept = token_batch(documents).without_empty()
    found = [kept.ids[a:b].tolist() for a, b in zip(kept.offsets, kept.offsets[1:], strict=False)]
    assert found == [document for document in documents if document]


@given(
    st.lists(st.integers(0, 4), max_size=10),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted), max_size=5),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_token_ranges_hold_exactly_the_tokens_that_share_a_character(
    widths: list[int], spans: list[list[int]], shift: int
) -> None:
    offsets = offsets_from_lengths(widths)
    pairs = [(start, stop) for start, stop in spans]
    ranges = token_ranges(pairs, offsets[:-1], offsets[1:], shift)
    covered = {character for start, stop in pairs for character in range(start, stop)}
    expected = {
        index + shift
        for index, (start, stop) in enumerate(pairwise(offsets))
        if covered & set(range(start, stop))
    }
    assert [token for start, stop in ranges for token in range(start, stop)] == sorted(expected)
    assert all(a[1] < b[0] for a, b in pairwise(ranges))


def test_documents_without_an_end_that_some_have() -> None:
    tokens = batch_of([[7, 2], [2], [], [2, 7]])
    ended = ends_with(tokens, 2)
    assert ended.tolist() == [True, True, False, False]
    found = without_ends(tokens, ended)
    assert (found.ids.tolist(), found.offsets.tolist()) == ([7, 2, 7], [0, 1, 1, 1, 3])


def test_tokens_that_reach_out_of_ranges_without_loss_keep_theirs() -> None:
    starts, stops = np.array([0, 2, 4, 4, 6, 8]), np.array([2, 4, 4, 6, 8, 9])  # the third is empty
    assert ranges_outside([(0, 3), (7, 9)], starts, stops, 9) == [(0, 1), (5, 6)]
    assert ranges_outside([(0, 4)], starts, stops, 9) == [(0, 3)]
    assert ranges_outside([(0, 9)], starts, stops, 9) == [(0, 6)]
    assert ranges_outside([], starts, stops, 9) == []

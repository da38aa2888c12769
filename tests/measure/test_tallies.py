"""Sums that can be added in any order, and the samples that intervals come from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenmill.core.errors import UserError
from tokenmill.encode.measure import tallies
from tokenmill.encode.measure.tallies import COLUMNS, NUM_SAMPLES, Sums, Tally, times_drawn

Document = tuple[str, int]
"""Its group, and a number that everything else follows from."""
DOCUMENTS = st.lists(st.tuples(st.sampled_from(["", "en", "th"]), st.integers(1, 40)), max_size=8)


def tally_of(documents: Sequence[Document]) -> Tally:
    tally = Tally.empty(50, [4, 16])
    for group, number in documents:
        hashes = np.array([number], np.uint64)
        columns = np.arange(len(COLUMNS))[None, :] * number
        tally.add_documents(group, hashes, columns, np.array([number, 50], np.uint32))
        tally.histogram[number] += 1
        tally.add_lengths(np.array([number]))
        tally.num_rejected += 1
    return tally


def content(tally: Tally) -> dict[str, list[object]]:
    return {name: array.tolist() for name, array in tally.arrays()}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS, st.integers(0, 8))
def test_parts_in_any_order_add_up_to_the_whole(documents: list[Document], cut: int) -> None:
    whole = tally_of(documents)
    total = Tally.empty(50, [4, 16])
    for part in (documents[cut:], documents[:cut]):
        total.add(Tally.of_arrays(dict(tally_of(part[::-1]).arrays())))
    assert content(total) == content(whole)


def test_pieces_are_those_of_documents_cut_at_a_length() -> None:
    tally = Tally.empty(1, [4])
    tally.add_lengths(np.array([1, 4, 5, 9, 4]))
    assert tally.pieces[4].tolist() == [0, 3, 0, 0, 5]


def test_samples_depend_on_the_document_alone() -> None:
    hashes = np.array([7, 7, 1 << 63, 0], np.uint64)
    together = times_drawn(hashes)
    assert together.shape == (4, 1 + NUM_SAMPLES)
    assert (together[:, 0] == 1).all()
    assert (together[0] == together[1]).all()
    assert (together[2:] == times_drawn(hashes[2:])).all()


def test_documents_are_drawn_as_a_poisson_variable_is() -> None:
    drawn = times_drawn(np.arange(2_000, dtype=np.uint64) * np.uint64(0x12345678901))[:, 1:]
    assert drawn.mean() == pytest.approx(1, abs=0.01)
    assert drawn.var() == pytest.approx(1, abs=0.02)
    assert (drawn == 0).mean() == pytest.approx(np.exp(-1), abs=0.005)
    # Neither samples nor documents go together.
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.1
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 0.3


def test_sums_over_samples_are_the_same_in_any_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes, values = np.arange(7, dtype=np.uint64), np.arange(14).reshape(7, 2)
    whole = tallies.sampled_sums(hashes, values)
    monkeypatch.setattr(tallies, "DOCUMENTS_A_STEP", 3)
    assert (tallies.sampled_sums(hashes, values) == whole).all()
    assert (whole == times_drawn(hashes).T.astype(int) @ values).all()


def test_large_sums_are_exact() -> None:
    values = np.full((3, len(COLUMNS)), 2**49 + 1, np.int64)
    tally = Tally.empty(1, [])
    tally.add_documents("", np.zeros(3, np.uint64), values, np.zeros(0, np.uint32))
    assert tally.groups[""].total("bytes") == 3 * (2**49 + 1)
    assert Sums.of([tally.groups[""]] * 2).total("bytes") == 6 * (2**49 + 1)


def test_too_many_groups_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "MAX_GROUPS", 2)
    with pytest.raises(UserError, match="more than 2 groups") as refused:
        tally_of([("a", 1), ("b", 1), ("a", 2), ("c", 1)])
    assert "'c'" in str(refused.value)

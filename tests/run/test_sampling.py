"""A document's number depends on nothing but its place or its id."""

from __future__ import annotations

import numpy as np
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.core.records import DocumentBatch
from tokenmill.run.units.attempt import chosen, document_hashes

GOLDEN = [0x909DD6C7CB290A14, 0xAB3DEBFC08DFF440, 0x66A30507CA95AA83]
GOLDEN_ID = 0xC11D9F2DEEE2F041
PRIMES = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def batch(positions: list[int], ids: list[str | None] | None = None) -> DocumentBatch:
    return DocumentBatch(
        source=0,
        texts=[""] * len(positions),
        positions=np.array(positions, np.int64),
        record_bytes=np.zeros(len(positions), np.int64),
        ids=ids,
    )


def hashes(
    positions: list[int], ids: list[str | None] | None = None, source: str = "a.jsonl"
) -> list[int]:
    return [int(value) for value in document_hashes(source, batch(positions, ids))]


def splitmix64(source: str, position: int) -> int:
    """The definition, in integers that do not overflow."""
    low = (1 << 64) - 1
    x = ((position + 1) * PRIMES[0] + xxhash.xxh3_64_intdigest(source.encode())) & low
    x = ((x ^ (x >> 30)) * PRIMES[1]) & low
    x = ((x ^ (x >> 27)) * PRIMES[2]) & low
    return x ^ (x >> 31)


def test_the_numbers_are_these_on_every_machine_and_in_every_version() -> None:
    """Were they to change, validation subsets of existing datasets would change with them."""
    assert hashes([0, 1, 1000]) == GOLDEN
    assert hashes([0], ["doc-1"]) == [xxhash.xxh3_64_intdigest(b"doc-1")] == [GOLDEN_ID]


@settings(deadline=None)
@given(st.text(max_size=8), st.lists(st.integers(0, 2**62), max_size=5))
def test_a_number_is_splitmix64_of_source_and_position(source: str, positions: list[int]) -> None:
    expected = [splitmix64(source, position) for position in positions]
    assert hashes(positions, source=source) == expected


def test_nothing_is_chosen_for_a_share_of_nothing_and_all_for_all() -> None:
    ends = np.array([0, 1, 2**63, 2**64 - 2], np.uint64)
    assert chosen(ends, 0.0).tolist() == [False] * 4
    assert chosen(ends, 1.0).tolist() == [True] * 4


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 1))
def test_what_a_smaller_share_chooses_a_larger_one_chooses_too(one: float, other: float) -> None:
    values = document_hashes("a.jsonl", batch(list(range(200))))
    smaller, larger = sorted([one, other])
    assert not (chosen(values, smaller) & ~chosen(values, larger)).any()

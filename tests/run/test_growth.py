"""How far a worker's memory may grow, measured on this process itself."""

from __future__ import annotations

import pytest

from tokenmill.run.machine import MIN_GROWTH_BYTES, Resources
from tokenmill.run.worker import GrownTooFar, Growth

MILLION = 1_000_000
BATCH_BYTES = 100


def hoard(megabytes: int) -> bytes:
    return b"x" * (megabytes * MILLION)


def test_a_process_is_full_beyond_its_share_and_stops_a_unit_at_twice_of_it() -> None:
    growth = Growth(100 * MILLION, BATCH_BYTES)
    kept = [hoard(150)]
    growth.check(BATCH_BYTES)
    assert growth.is_full()
    kept.append(hoard(100))
    with pytest.raises(GrownTooFar) as caught:
        growth.check(BATCH_BYTES)
    assert 240 * MILLION < caught.value.grown_bytes < 300 * MILLION
    assert kept


def test_what_was_given_back_does_not_count() -> None:
    growth = Growth(100 * MILLION, BATCH_BYTES)
    kept = hoard(300)
    del kept
    growth.check(BATCH_BYTES)
    assert not growth.is_full()


def test_a_long_record_takes_what_it_takes_while_it_is_there() -> None:
    growth = Growth(100 * MILLION, BATCH_BYTES)
    kept = hoard(300)
    growth.check(5 * BATCH_BYTES)
    with pytest.raises(GrownTooFar):
        growth.check(6 * BATCH_BYTES)
    assert kept


@pytest.mark.parametrize(
    ("num_workers", "memory_bytes", "growth_bytes"),
    [(2, 1_500_000_000, 500_000_000), (19, 1_500_000_000, MIN_GROWTH_BYTES)],
)
def test_a_worker_may_grow_by_its_share_but_not_by_less_than_engines_need(
    num_workers: int, memory_bytes: int, growth_bytes: int
) -> None:
    assert Resources(num_workers, "", memory_bytes, 2).growth_bytes == growth_bytes

"""How far a worker's memory may grow, measured on this process itself."""

from __future__ import annotations

import pytest

from tokenmill.run.worker import GrownTooFar, Growth

MILLION = 1_000_000
BATCH_BYTES = 100


def hoard(megabytes: int) -> bytes:
    return b"x" * (megabytes * MILLION)


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

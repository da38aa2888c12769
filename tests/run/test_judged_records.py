"""What a build with bad records advises can be done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.run.journal.receipts import _just_above


@given(good=st.integers(1, 10**12), bad=st.integers(1, 10**12))
def test_the_share_that_is_advised_allows_the_bad_records_and_is_under_100_percent(
    good: int, bad: int
) -> None:
    share = bad / (good + bad)
    assert share <= float(_just_above(share).removesuffix("%")) / 100 < 1

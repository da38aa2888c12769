"""What agents know of each other's units, and what is advised about bad records."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.read.formats.format import Extent
from tokenmill.read.units import Unit
from tokenmill.run.executor import Receipt, receipt_name
from tokenmill.run.journal.ledger import Ledger, _just_above, write_receipt
from tokenmill.store.objects.folder import FolderStore

KEYS = ("00000000-000000", "00000000-000001")


def receipt(key: str) -> Receipt:
    """Of a unit with nothing in it."""
    return Receipt(
        key=key,
        extents=[],
        files=[],
        documents=0,
        tokens=0,
        counts={},
        read_digests={},
        audited=0,
        excluded=[],
        seconds=0.0,
    )


def test_a_receipt_that_another_agent_removed_is_missing_again(tmp_path: Path) -> None:
    """That agent has found that files of the unit are lost."""
    store, units = FolderStore(tmp_path), [Unit(key, (Extent(0, 0, 1),), 1) for key in KEYS]
    first, second = Ledger(store, units), Ledger(store, units)
    for key in KEYS:
        first.count(write_receipt(store, receipt(key)))
    second.refresh()
    assert second.is_complete()
    store.remove([receipt_name(KEYS[1])])
    second.read_all()
    assert not second.is_complete()
    second.count(write_receipt(store, receipt(KEYS[1])))
    assert [found.key for found in second.final_receipts()] == list(KEYS)


@given(good=st.integers(1, 10**12), bad=st.integers(1, 10**12))
def test_the_share_that_is_advised_allows_the_bad_records_and_is_under_100_percent(
    good: int, bad: int
) -> None:
    share = bad / (good + bad)
    assert share <= float(_just_above(share).removesuffix("%")) / 100 < 1

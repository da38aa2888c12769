"""What a build with bad records advises can be done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill
from tokenmill.core.errors import DataError
from tokenmill.run.journal.receipts import _just_above


@given(good=st.integers(1, 10**12), bad=st.integers(1, 10**12))
def test_the_share_that_is_advised_allows_the_bad_records_and_is_under_100_percent(
    good: int, bad: int
) -> None:
    share = bad / (good + bad)
    assert share <= float(_just_above(share).removesuffix("%")) / 100 < 1


def test_where_no_record_is_good_no_share_is_advised(tmp_path: Path, tokenizer_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": 1}\n{"text": 2}\n')
    with pytest.raises(DataError, match="2 of 2 records are bad") as raised:
        tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1)
    assert "every record is bad, so check --text-field" in (raised.value.hint or "")
    assert not re.search("--max-bad", raised.value.hint or "")

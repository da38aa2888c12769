"""Plain text: a file is one document, or several with a separator between them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.read.fields import Fields
from tokenmill.read.formats.text import parse_text_block

BOM = b"\xef\xbb\xbf"


def test_a_whole_file_is_one_document_with_its_last_line_end() -> None:
    batch = parse_text_block(b"  one\r\ntwo\n", 0, 3, Fields())
    assert (batch.source, batch.texts) == (3, ["  one\r\ntwo\n"])
    assert (batch.positions.tolist(), batch.record_bytes.tolist()) == ([0], [11])


def test_an_empty_file_is_an_empty_document() -> None:
    assert parse_text_block(b"", 0, 0, Fields()).texts == [""]


def test_separators_belong_to_the_document_before_them_and_are_taken_off() -> None:
    batch = parse_text_block(b"one--two----three", 10, 0, Fields(separator="--"))
    assert batch.texts == ["one", "two", "", "three"]
    assert batch.positions.tolist() == [10, 15, 20, 22]
    assert batch.record_bytes.tolist() == [5, 5, 2, 5]


def test_nothing_follows_the_last_separator_of_a_block() -> None:
    assert parse_text_block(b"one--two--", 0, 0, Fields(separator="--")).texts == ["one", "two"]
    assert parse_text_block(b"", 0, 0, Fields(separator="--")).texts == []


def test_a_byte_order_mark_is_counted_at_the_start_of_a_file_and_text_elsewhere() -> None:
    first, later = (
        parse_text_block(BOM + b"one", offset, 0, Fields(separator="--")) for offset in (0, 9)
    )
    assert (first.texts, first.positions.tolist(), first.bom_bytes) == (["one"], [3], 3)
    assert (later.texts, later.positions.tolist(), later.bom_bytes) == (["\ufeffone"], [9], 0)


def test_a_document_that_is_not_utf8_is_set_aside_alone() -> None:
    batch = parse_text_block(b"one--t\xffo--three", 0, 1, Fields(separator="--"))
    assert (batch.texts, batch.positions.tolist()) == (["one", "three"], [0, 10])
    (item,) = batch.rejected
    assert (item.position, item.num_bytes, item.record) == (5, 5, b"t\xffo")
    assert (item.reason, item.detail) == (
        "invalid-utf8",
        "invalid start byte at byte 1 of the document",
    )


@pytest.mark.parametrize("offset", [0, 50])
@given(st.lists(st.sampled_from([b"a", b"-", b"\xff", BOM, b"\n"])).map(b"".join))
@settings(deadline=None)
def test_the_bytes_of_any_block_add_up(offset: int, block: bytes) -> None:
    for separator in (None, "-", "--"):
        batch = parse_text_block(block, offset, 0, Fields(separator=separator))
        rejected = sum(item.num_bytes for item in batch.rejected)
        assert int(batch.record_bytes.sum()) + rejected + batch.bom_bytes == len(block)

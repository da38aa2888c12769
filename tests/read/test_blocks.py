"""Byte ranges of a file share no record and lose none, wherever they are cut."""

from __future__ import annotations

import io
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.read.blocks import iter_blocks, overlaps_itself

# Few letters, so that delimiters and halves of delimiters are everywhere.
letters = st.sampled_from([b"a", b"b", b"\n", b"|"])
data_of_letters = st.lists(letters, max_size=40).map(b"".join)
delimiters = st.lists(letters, min_size=1, max_size=4).map(b"".join)


def records_of(data: bytes, delimiter: bytes) -> list[bytes]:
    """The records with their delimiters, found from the left."""
    pieces = data.split(delimiter)
    return [piece + delimiter for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def read_range(
    data: bytes,
    start: int,
    stop: int | None,
    delimiter: bytes,
    block_bytes: int,
    max_record: int = 10_000,
) -> list[tuple[int, bytes]]:
    stream = io.BytesIO(data)
    stream.seek(max(start - len(delimiter), 0))
    return list(iter_blocks(stream, start, stop, delimiter, block_bytes, max_record))


def test_a_record_belongs_to_the_range_that_holds_its_first_byte() -> None:
    assert read_range(b"aa\nbb\ncc", 0, 1, b"\n", 100) == [(0, b"aa\n")]
    assert read_range(b"aa\nbb\ncc", 1, 4, b"\n", 100) == [(3, b"bb\n")]
    assert read_range(b"aa\nbb\ncc", 4, 6, b"\n", 100) == []
    assert read_range(b"aa\nbb\ncc", 4, 8, b"\n", 100) == [(6, b"cc")]


@given(data_of_letters, delimiters, st.lists(st.integers(0, 45)), st.integers(1, 50))
@example(b"abc", b"bc|", [1, 2], 1)
@settings(deadline=None, max_examples=400)
def test_neighbouring_ranges_give_every_record_exactly_once(
    data: bytes, delimiter: bytes, cuts: list[int], block_bytes: int
) -> None:
    if overlaps_itself(delimiter):
        return
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found, at = [], 0
    for start, stop in pairwise(edges):
        for offset, block in read_range(data, start, stop, delimiter, block_bytes):
            assert offset == at
            first = records_of(block, delimiter)[0]
            assert start <= offset < stop or offset + len(first) <= stop
            found += records_of(block, delimiter)
            at += len(block)
    assert found == records_of(data, delimiter)


@given(data_of_letters, delimiters, st.integers(1, 50))
@example(b"a\n\n\nb\n\nc", b"\n\n", 1)
@settings(deadline=None, max_examples=400)
def test_the_block_size_never_shows_in_the_records_of_a_whole_file(
    data: bytes, delimiter: bytes, block_bytes: int
) -> None:
    """Delimiters that overlap themselves included: they are found from the left."""
    blocks = read_range(data, 0, None, delimiter, block_bytes)
    assert b"".join(block for _, block in blocks) == data
    assert [r for _, block in blocks for r in records_of(block, delimiter)] == records_of(
        data, delimiter
    )


class Trickle(io.BytesIO):
    """A stream that gives one byte at a time, as decompressors may."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 1))


def test_blocks_do_not_depend_on_how_much_a_stream_gives_at_once() -> None:
    data = b"aaaa\nbb\ncccccccc\nd"
    whole = list(iter_blocks(io.BytesIO(data), 0, None, b"\n", 6, 100))
    assert list(iter_blocks(Trickle(data), 0, None, b"\n", 6, 100)) == whole


def test_delimiters_that_overlap_themselves_are_known() -> None:
    overlapping = {
        d for d in (b"\n", b"\n\n", b"aba", b"ab", b"---", b"-|", b"-|-") if overlaps_itself(d)
    }
    assert overlapping == {b"\n\n", b"aba", b"---", b"-|-"}

"""Documents longer than a sequence: what every policy keeps, cuts and enters in its books."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from packing_kit import figures_of, pack_documents, shown, window_of
from tokenmill.packing.long_documents import Boundaries, CutBooks, Places, cut
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategies import contradictions
from tokenmill.packing.window import pack_window

NINE = [9]


def parts(lengths: list[int], length: int, **options: Any) -> list[tuple[int, int, int]]:
    """(document, start, stop) of every piece, as cut before packing."""
    pieces, _ = cut_up(lengths, length, **options)
    return pieces


def cut_up(
    lengths: list[int], length: int, boundaries: Boundaries | None = None, **options: Any
) -> tuple[list[tuple[int, int, int]], CutBooks]:
    wanted = PackOptions(sequence_length=length, **options)
    documents = np.arange(len(lengths), dtype=np.int32)
    pieces, books = cut(documents, np.array(lengths, np.int32), wanted, boundaries)
    rows = zip(
        pieces.segments.documents.tolist(),
        pieces.segments.starts.tolist(),
        pieces.segments.lengths.tolist(),
        strict=True,
    )
    return [(document, start, start + taken) for document, start, taken in rows], books


def ranges(length_of_document: int, length: int, **options: Any) -> list[tuple[int, int]]:
    """[start, stop) of the pieces of one document."""
    return [(start, stop) for _, start, stop in parts([length_of_document], length, **options)]


def test_drop_leaves_whole_documents_out() -> None:
    pieces, books = cut_up([9, 4, 5], 4, long_documents="drop")
    assert pieces == [(1, 0, 4)]
    assert books == CutBooks({"dropped": 14}, {"dropped": 2})


def test_keep_both_ends_is_two_segments_of_a_row_of_its_own() -> None:
    packed = pack_documents([3, 9, 1], 4, long_documents="keep-both-ends")
    assert shown(packed.sequences) == [[(0, 0, 3), (2, 0, 1)], [(1, 0, 2), (1, 7, 2)]]
    assert packed.books == CutBooks({"middle removed": 5}, {"middle removed": 1})


@pytest.mark.parametrize(
    ("share", "row"),
    [
        (0.5, [(0, 0, 5), (0, 95, 5)]),
        (0.25, [(0, 0, 3), (0, 93, 7)]),
        (0.0, [(0, 90, 10)]),
        (1.0, [(0, 0, 10)]),
    ],
)
def test_the_share_of_the_start_is_rounded_up(share: float, row: list[tuple[int, ...]]) -> None:
    packed = pack_documents([100], 10, long_documents="keep-both-ends", start_share=share)
    assert shown(packed.sequences) == [row]


def test_both_ends_are_two_segments_under_a_limit_of_one() -> None:
    """Refused, or only one end is kept."""
    options = PackOptions(sequence_length=8, long_documents="keep-both-ends", max_segments=1)
    if not list(map(str, contradictions(options))):
        packed = pack_window(window_of([20]), options)
        assert figures_of(packed, options).most_segments == 1


def test_what_is_kept_leaves_room_for_the_token_that_stands_for_the_rest() -> None:
    kept = {
        ("keep-start", "eos"): [(0, 3)],
        ("keep-start", "bos"): [(0, 4)],
        ("keep-start", "bos-and-eos"): [(0, 3)],
        ("keep-end", "eos"): [(5, 9)],
        ("keep-end", "bos"): [(6, 9)],
        ("keep-end", "bos-and-eos"): [(6, 9)],
    }
    for (policy, at_cuts), expected in kept.items():
        assert ranges(9, 4, long_documents=policy, at_cuts=at_cuts) == expected
        figures = figures_of(
            pack_documents(NINE, 4, long_documents=policy, at_cuts=at_cuts),
            PackOptions(sequence_length=4, long_documents=policy, at_cuts=at_cuts),
        )
        assert figures.tokens_set_at_cuts == 4 - sum(stop - start for start, stop in expected)
        assert figures.padding == 0


def boundaries_after(*places: int, length: int) -> Boundaries:
    """One document in which a boundary follows each of these tokens."""
    ids = np.zeros(length, np.uint16)
    ids[list(places)] = 1
    return Boundaries(lambda document: ids, np.array([False, True]), *[np.zeros(2, np.bool_)] * 2)


def at_boundaries(places: list[int], length_of_document: int, length: int, **options: Any) -> Any:
    boundaries = boundaries_after(*places, length=length_of_document)
    pieces, books = cut_up(
        [length_of_document], length, boundaries, long_documents="split-at-boundary", **options
    )
    assert books == CutBooks()
    return [(start, stop) for _, start, stop in pieces]


def test_an_eighth_of_a_sequence_is_searched_by_default() -> None:
    assert at_boundaries([13], 20, 16) == [(0, 16), (16, 20)]
    assert at_boundaries([14], 20, 16) == [(0, 15), (15, 20)]


def test_only_long_documents_are_read_for_their_boundaries() -> None:
    read: list[int] = []

    def ids_of(document: int) -> np.ndarray:
        read.append(document)
        return np.zeros(9, np.int64)

    boundaries = Boundaries(ids_of, np.array([True]), *[np.zeros(1, np.bool_)] * 2)
    pieces, _ = cut_up([4, 9, 8], 8, boundaries, long_documents="split-at-boundary")
    assert pieces == [(0, 0, 4), (1, 0, 8), (1, 8, 9), (2, 0, 8)]
    assert read == [1]


def test_without_boundaries_there_is_no_split_at_boundaries() -> None:
    with pytest.raises(ValueError, match="needs boundaries"):
        cut_up([9], 4, long_documents="split-at-boundary")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.booleans(), min_size=1, max_size=60),
    st.integers(3, 20),
    st.integers(1, 25),
    st.sampled_from(["nothing", "bos", "eos", "bos-and-eos"]),
)
def test_every_cut_is_the_latest_that_the_slack_allows(
    marks: list[bool], length: int, slack: int, at_cuts: str
) -> None:
    places = [place for place, is_end in enumerate(marks) if is_end]
    pieces = at_boundaries(places, len(marks), length, slack=slack, at_cuts=at_cuts)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == len(marks)
    for (start, stop), (following, _) in pairwise(pieces):
        assert stop == following
        room = length - ("bos" in at_cuts and start > 0) - ("eos" in at_cuts)
        full = start + room
        near = [place for place in range(full, max(full - slack, start), -1) if marks[place - 1]]
        assert stop == (near[0] if near else full)
    start, stop = pieces[-1]
    assert stop - start + ("bos" in at_cuts and start > 0) <= length


def hugging_face_windows(count: int, length: int, stride: int) -> list[tuple[int, int]]:
    """As `Encoding::truncate` is defined: windows a step apart, up to the first that ends."""
    result = [(0, min(length, count))]
    while result[-1][1] < count:
        start = result[-1][0] + length - stride
        result.append((start, min(start + length, count)))
    return result


@pytest.mark.parametrize(
    ("count", "length", "stride", "windows"),
    [
        (5, 4, 2, [(0, 4), (2, 5)]),
        (3, 2, 0, [(0, 2), (2, 3)]),
        (4, 4, 3, [(0, 4)]),
        (6, 4, 3, [(0, 4), (1, 5), (2, 6)]),
    ],
)
def test_the_overlap_is_what_hugging_face_calls_stride(
    count: int, length: int, stride: int, windows: list[tuple[int, int]]
) -> None:
    assert hugging_face_windows(count, length, stride) == windows
    assert ranges(count, length, long_documents="sliding-window", overlap=stride) == windows


@st.composite
def strides(draw: st.DrawFn) -> tuple[int, int, int]:
    """Tokens, window, overlap."""
    length = draw(st.integers(1, 20))
    return draw(st.integers(1, 80)), length, draw(st.integers(0, length - 1))


@settings(max_examples=100, deadline=None)
@given(strides())
@example((80, 20, 19))
def test_windows_are_those_of_the_definition(case: tuple[int, int, int]) -> None:
    count, length, overlap = case
    windows = hugging_face_windows(count, length, overlap)
    assert ranges(count, length, long_documents="sliding-window", overlap=overlap) == windows


@pytest.fixture(scope="module")
def numbers() -> Tokenizer:
    """A tokenizer that reads "0 1 2" as the ids 0, 1 and 2."""
    tokenizer = Tokenizer(models.WordLevel({str(i): i for i in range(100)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    probe = tokenizer.encode("1 2 3")
    probe.truncate(2)
    if not probe.overflowing:
        pytest.skip("these tokenizers give no overflow on truncation of the end")
    return tokenizer


@settings(max_examples=100, deadline=None)
@given(strides())
def test_windows_are_those_of_hugging_face_tokenizers(
    numbers: Tokenizer, case: tuple[int, int, int]
) -> None:
    count, length, overlap = case
    encoding = numbers.encode(" ".join(map(str, range(count))))
    encoding.truncate(length, stride=overlap)
    theirs = [encoding.ids, *(window.ids for window in encoding.overflowing)]
    ours = ranges(count, length, long_documents="sliding-window", overlap=overlap)
    assert [list(range(start, stop)) for start, stop in ours] == theirs


@settings(max_examples=100, deadline=None)
@given(strides(), st.sampled_from(["keep-start", "keep-end"]))
def test_one_end_is_what_hugging_face_tokenizers_truncate_to(
    numbers: Tokenizer, case: tuple[int, int, int], policy: str
) -> None:
    count, length, _ = case
    encoding = numbers.encode(" ".join(map(str, range(count))))
    encoding.truncate(length, direction="right" if policy == "keep-start" else "left")
    [(start, stop)] = ranges(count, length, long_documents=policy)
    assert list(range(start, stop)) == encoding.ids


def test_books_add_up_by_reason() -> None:
    books = CutBooks({"dropped": 5}, {"dropped": 1}, 2)
    books.add(CutBooks({"dropped": 7, "end removed": 3}, {"dropped": 1, "end removed": 2}, 4))
    assert books == CutBooks({"dropped": 12, "end removed": 3}, {"dropped": 2, "end removed": 2}, 6)


# Ranges: what is left of documents.


def cut_ranges(length: int, **options: Any) -> list[tuple[int, int]]:
    """[start, stop) of the pieces of tokens 2 to 11, and of the last three, of a document of 20."""
    places = Places(*(np.array(each, np.int32) for each in ([0, 0], [2, 17], [20, 20])), 1)
    wanted = PackOptions(sequence_length=length, **options)
    pieces, _ = cut(np.arange(2, dtype=np.int32), np.array([10, 3], np.int32), wanted, None, places)
    assert (pieces.sizes <= length).all()
    segments = pieces.segments
    return list(
        zip(segments.starts.tolist(), (segments.starts + segments.lengths).tolist(), strict=True)
    )


def test_the_ends_of_a_range_inside_its_document_are_cuts() -> None:
    assert cut_ranges(10) == [(2, 12), (17, 20)]
    assert cut_ranges(11, at_cuts="bos") == [(2, 12), (17, 20)]
    assert cut_ranges(11, at_cuts="bos-and-eos") == [(2, 11), (11, 12), (17, 20)]
    assert cut_ranges(10, at_cuts="bos") == [(2, 11), (11, 12), (17, 20)]
    assert cut_ranges(10, at_cuts="eos") == [(2, 11), (11, 12), (17, 20)]
    assert cut_ranges(4, at_cuts="bos-and-eos") == [
        (2, 4), (4, 6), (6, 8), (8, 10), (10, 12), (17, 20),
    ]  # fmt: skip


def test_what_is_kept_of_a_range_leaves_room_for_the_tokens_at_both_ends() -> None:
    assert cut_ranges(8, long_documents="keep-start") == [(2, 10), (17, 20)]
    assert cut_ranges(8, long_documents="keep-start", at_cuts="bos-and-eos") == [(2, 8), (17, 20)]
    assert cut_ranges(8, long_documents="keep-end", at_cuts="bos") == [(5, 12), (17, 20)]
    assert cut_ranges(8, long_documents="keep-end", at_cuts="bos-and-eos") == [(6, 12), (17, 20)]
    assert cut_ranges(11, long_documents="drop", at_cuts="bos") == [(2, 12), (17, 20)]
    assert cut_ranges(10, long_documents="drop", at_cuts="bos") == [(17, 20)]


def test_the_first_window_of_a_range_repeats_tokens_before_it() -> None:
    windows = {"long_documents": "sliding-window", "overlap": 3}
    assert cut_ranges(12, **windows) == [(0, 12), (14, 20)]
    assert cut_ranges(8, **windows) == [(0, 8), (5, 12), (14, 20)]

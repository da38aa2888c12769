"""Where words are cut: by the cases of UAX #29, by a library, and by Python."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.core.errors import UserError
from tokenmill.encode.measure.language_words import WordCutter
from tokenmill.kernels.word_boundaries import EncodedTexts

regex = pytest.importorskip("regex")
ALPHABET = "aZé1٣.,:;_ \n-x字あカア©³"
"""What the library cuts as the standard does, in any order."""


def words(rule: str, *texts: str) -> list[list[str]]:
    encoded = EncodedTexts.of(texts)
    found = WordCutter(rule).cut(encoded)
    data = encoded.data.tobytes()
    shown = [data[start:stop].decode() for start, stop in found.spans.tolist()]
    edges = found.edges.tolist()
    return [shown[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick (“brown”) fox can’t jump 32.3 feet, right?",
         "The quick brown fox can’t jump 32.3 feet right"),
        ("can't. 'quoted' x.y a:b 3,456.789 1: 3a_b __", "can't quoted x.y a:b 3,456.789 1 3a_b"),
        ("北京 ひら カタカナ 한국어", "北 京 ひ ら カタカナ 한국어"),
        ("ק\"מ ק' ק'ק \"ק", "ק\"מ ק' ק'ק ק"),
        ("a\u0308b a:\u0308b a\u200d'\u200db", "a\u0308b a:\u0308b a\u200d'\u200db"),
        ("🇩🇪🇫🇷a 👩\u200d💻 x", "a x"),
        ("a\r\nb\u0085c", "a b c"),
        ("'a a' a''b 1.a a.1 1'1", "a a a b 1 a a 1 1'1"),
        ("", ""),
    ],
)  # fmt: skip
def test_words_by_uax29(text: str, expected: str) -> None:
    assert words("uax29", text) == [expected.split()]


def test_marks_at_the_start_of_a_text_or_line_stand_alone() -> None:
    assert words("uax29", "\u0308a", "\n\u0308a", "\u200d字") == [["a"], ["a"], ["字"]]


@settings(deadline=None)
@given(st.lists(st.text(ALPHABET, max_size=12), max_size=4))
@example(["a.", ".a", "1.1."])
def test_words_are_those_of_the_library(texts: list[str]) -> None:
    def theirs(text: str) -> list[str]:
        pieces = regex.split(r"(?w)\b", text, flags=regex.V1)
        return [piece for piece in pieces if regex.search(r"[\p{L}\p{N}]", piece)]

    assert words("uax29", *texts) == [theirs(text) for text in texts]


@settings(deadline=None)
@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_text_is_cut_without_an_overlap(texts: list[str]) -> None:
    encoded = EncodedTexts.of(texts)
    found = WordCutter("uax29").cut(encoded)
    places = found.spans.ravel().tolist()
    assert places == sorted(places)
    assert found.edges[-1] == len(found.spans)


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("ab é字\u00a0\u3000\n\t😀\u1680"), max_size=8), max_size=4))
def test_white_space_cuts_as_python_does(texts: list[str]) -> None:
    assert words("whitespace", *texts) == [text.split() for text in texts]
    assert words("characters", *texts) == [list("".join(text.split())) for text in texts]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean whitespace"):
        WordCutter("whitspace")

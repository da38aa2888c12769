"""Special-token strings inside ordinary text, counted."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.encode.special_strings import SpecialStrings


def test_texts_that_hold_special_strings_are_counted_by_index() -> None:
    texts = ["plain", "</s> and </s><s>", "", "< s>", "<s>"]
    assert SpecialStrings(["<s>", "</s>"]).counts(texts) == {1: 3, 4: 1}


def test_of_two_strings_that_start_alike_the_longer_is_counted() -> None:
    assert SpecialStrings(["<|a", "<|a|>"]).counts(["<|a|><|a"]) == {0: 2}


def test_strings_that_regexes_would_misread_are_strings() -> None:
    assert SpecialStrings(["[EOS]", "a.c", "(*)"]).counts(["E abc", "[EOS](*)a.c"]) == {1: 3}


def test_without_special_tokens_nothing_is_found() -> None:
    assert SpecialStrings([]).counts(["", "a"]) == {}
    assert SpecialStrings([""]).counts(["", "a"]) == {}


tokens = st.lists(st.text("<|>ab", max_size=4), max_size=6)


@settings(deadline=None)
@given(tokens, st.lists(st.text("<|>ab", max_size=20), max_size=6))
def test_counts_are_those_of_one_regex_of_all_tokens(names: list[str], texts: list[str]) -> None:
    longest_first = sorted(filter(None, names), key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    found = {i: len(re.findall(pattern, text)) for i, text in enumerate(texts)}
    expected = {i: count for i, count in found.items() if count and pattern}
    assert SpecialStrings(names).counts(texts) == expected

"""Special-token strings inside ordinary text, counted."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.encode.special_strings import SpecialStrings


def test_texts_that_hold_special_strings_are_counted_by_index() -> None:
    texts = ["plain", "</s> and </s><s>", "", "< s>", "<s>"]
    assert SpecialStrings(["<s>", "</s>"]).counts(texts) == {1: 3, 4: 1}


tokens = st.lists(st.text("<|>ab", max_size=4), max_size=6)


@settings(deadline=None)
@given(tokens, st.lists(st.text("<|>ab", max_size=20), max_size=6))
def test_counts_are_those_of_one_regex_of_all_tokens(names: list[str], texts: list[str]) -> None:
    longest_first = sorted(filter(None, names), key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    found = {i: len(re.findall(pattern, text)) for i, text in enumerate(texts)}
    expected = {i: count for i, count in found.items() if count and pattern}
    assert SpecialStrings(names).counts(texts) == expected

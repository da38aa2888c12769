"""Find and count the strings of special tokens in ordinary text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence


class SpecialStrings:
    """Counts occurrences of special tokens in texts.

    Most texts contain none, so the cheapest test comes first. For each group of tokens with a
    common first character, a text is searched for one character, then for the tokens.
    """

    def __init__(self, special_tokens: Iterable[str]) -> None:
        tokens = sorted(filter(None, special_tokens), key=len, reverse=True)
        groups: dict[str, list[str]] = {}
        for token in tokens:
            groups.setdefault(token[0], []).append(token)
        self._groups = []
        for group in groups.values():
            start = os.path.commonprefix(group)  # noqa: RUF071
            # In code, the bar of "<|" is rarer than "<".
            self._groups.append(("|" if "|" in start else start[0], _any_of(group)))
        self._pattern = _any_of(tokens)

    def counts(self, texts: Sequence[str]) -> dict[int, int]:
        """Return the number of occurrences by index of the text, without texts that have none."""
        found = {}
        for character, group in self._groups:
            for index, text in enumerate(texts):
                if character in text and index not in found and group.search(text):
                    found[index] = len(self._pattern.findall(text))
        return dict(sorted(found.items()))


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the tokens."""
    return re.compile("|".join(map(re.escape, tokens)))

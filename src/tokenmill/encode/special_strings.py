"""Find and count the strings of special tokens in ordinary text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence


class SpecialStrings:
    """Counts occurrences of special tokens in texts.

    Most texts contain none, so the cheapest test comes first. For each group of tokens, a text is
    searched for one character, then for the group's common prefix, then for the tokens.
    """

    def __init__(self, special_tokens: Iterable[str]) -> None:
        tokens = sorted(filter(None, special_tokens), key=len, reverse=True)
        groups: dict[str, list[str]] = {}
        for token in tokens:
            groups.setdefault(token[0], []).append(token)
        starts = [os.path.commonprefix(group) for group in groups.values()]  # noqa: RUF071
        self._groups = [
            # In code, the bar of "<|" is rarer than "<".
            ("|" if "|" in start else start[0], start, _any_of(group))
            for start, group in zip(starts, groups.values(), strict=True)
        ]
        self._pattern = _any_of(tokens)

    def counts(self, texts: Sequence[str]) -> dict[int, int]:
        """Return the number of occurrences by index of the text, without texts that have none."""
        found = {}
        for character, start, group in self._groups:
            for index, text in enumerate(texts):
                if (
                    character in text
                    and start in text
                    and index not in found
                    and group.search(text)
                ):
                    found[index] = len(self._pattern.findall(text))
        return dict(sorted(found.items()))


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the tokens."""
    return re.compile("|".join(map(re.escape, tokens)))

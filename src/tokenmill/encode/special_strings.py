"""Special-token strings inside ordinary text: found fast, counted, and refused where asked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence


class SpecialStrings:
    """Counts occurrences of special tokens in texts.

    Most texts hold none, so each is first searched for one character of each group of tokens, then
    for what all of the group begin with, then for the group: what is faster comes first.
    """

    def __init__(self, special_tokens: Iterable[str]) -> None:
        tokens = sorted(filter(None, special_tokens), key=len, reverse=True)
        groups: dict[str, list[str]] = {}
        for token in tokens:
            groups.setdefault(token[0], []).append(token)
        starts = [os.path.commonprefix(group) for group in groups.values()]  # noqa: RUF071
        self._groups = [
            (_rare_character(start), start, _any_of(group))
            for start, group in zip(starts, groups.values(), strict=True)
        ]
        self._pattern = _any_of(tokens)

    def counts(self, texts: Sequence[str]) -> dict[int, int]:
        """Occurrences by index of the text, for the texts that hold any."""
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
    """A pattern that is compiled to look for what all tokens begin with."""
    return re.compile("|".join(map(re.escape, tokens)))


def _rare_character(start: str) -> str:
    """A character of what all tokens begin with: of "<|" the bar, which code uses less."""
    return "|" if "|" in start else start[0]

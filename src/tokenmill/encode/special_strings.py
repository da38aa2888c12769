"""Special-token strings inside ordinary text: found fast, counted, and refused where asked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence


class SpecialStrings:
    """Counts occurrences of special tokens in texts.

    Most texts hold none, so each is first searched for one character of each group of tokens, then
    for the group.
    """

    def __init__(self, special_tokens: Iterable[str]) -> None:
        tokens = sorted(filter(None, special_tokens), key=len, reverse=True)
        groups: dict[str, list[str]] = {}
        for token in tokens:
            groups.setdefault(token[0], []).append(token)
        self._groups = [(_rare_character(group), _any_of(group)) for group in groups.values()]
        self._pattern = _any_of(tokens)

    def counts(self, texts: Sequence[str]) -> dict[int, int]:
        """Occurrences by index of the text, for the texts that hold any."""
        found = {}
        for character, group in self._groups:
            for index, text in enumerate(texts):
                if character in text and index not in found and group.search(text):
                    found[index] = len(self._pattern.findall(text))
        return dict(sorted(found.items()))


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """A pattern that is compiled to look for what all tokens begin with."""
    return re.compile("|".join(map(re.escape, tokens)))


def _rare_character(group: Sequence[str]) -> str:
    """A character that all tokens begin with: of "<|" the bar, which code and markup use less."""
    # Characters are meant here, not parts of paths.
    start = os.path.commonprefix(group)  # noqa: RUF071
    return "|" if "|" in start else start[0]

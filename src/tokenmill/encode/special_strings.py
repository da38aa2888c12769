"""Special-token strings inside ordinary text: found fast, counted, and refused where asked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence


class SpecialStrings:
    """Counts occurrences of special tokens in texts.

    Most texts hold none, so each is first searched for what a group of tokens starts with.
    """

    def __init__(self, special_tokens: Iterable[str]) -> None:
        tokens = sorted(filter(None, special_tokens), key=len, reverse=True)
        groups: dict[str, list[str]] = {}
        for token in tokens:
            groups.setdefault(token[:2], []).append(token)
        # Characters are meant here, not parts of paths.
        self._starts = [os.path.commonprefix(group) for group in groups.values()]  # noqa: RUF071
        self._pattern = re.compile("|".join(map(re.escape, tokens)))

    def counts(self, texts: Sequence[str]) -> dict[int, int]:
        """Occurrences by index of the text, for the texts that hold any."""
        found = {}
        for start in self._starts:
            for index, text in enumerate(texts):
                if start in text and index not in found:
                    found[index] = len(self._pattern.findall(text))
        return {index: count for index, count in sorted(found.items()) if count}

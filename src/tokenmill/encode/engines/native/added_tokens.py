"""Find added tokens before any step of the tokenizer, as the library does.

The leftmost token wins, and of several that start there, the longest. This is only for tokens
without flags, which match raw text, and for tokenizers that encode the text after a token like a
new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.engine import Engine


class AddedTokens:
    """Encodes the texts between added tokens with an engine."""

    def __init__(self, engine: Engine, ids: dict[str, int], as_text: set[str]) -> None:
        """Tokens in `as_text` are encoded like text, and only hide others inside them."""
        self.name = engine.name
        self.version = engine.version
        self._engine = engine
        self._ids = ids
        self._as_text = as_text
        self._pattern = re.compile(f"({longest_of(filter(None, ids))})")

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text, in order."""
        parts = [self._parts(text) for text in texts]
        between = self._engine.encode([part for found in parts for part in found[::2]])
        # After each part between tokens comes a token, except at the end of a text.
        ids = [self._ids[token] for found in parts for token in found[1::2]]
        is_last = np.zeros(len(between.lengths), np.bool_)
        ends = offsets_from_lengths([(len(found) + 1) // 2 for found in parts])
        is_last[ends[1:] - 1] = True
        offsets = offsets_from_lengths(between.lengths + ~is_last)
        made = np.insert(between.ids, between.offsets[1:][~is_last], np.array(ids, np.uint32))
        return TokenBatch(made, offsets[ends])

    def _parts(self, text: str) -> list[str]:
        """Return the text before the first token, the token, the text after it, and so on."""
        parts = self._pattern.split(text)
        if self._as_text and not self._as_text.isdisjoint(parts[1::2]):
            for i in range(len(parts) - 2, 0, -2):
                if parts[i] in self._as_text:
                    parts[i - 1 : i + 2] = ["".join(parts[i - 1 : i + 2])]
        return parts


def longest_of(strings: Iterable[str]) -> str:
    """Return a regex for the longest of some strings that begins at a place."""
    by_first: dict[str, list[str]] = {}
    for string in strings:
        by_first.setdefault(string[:1], []).append(string[1:])
    ends_here = by_first.pop("", None)
    parts = [re.escape(first) + longest_of(rest) for first, rest in by_first.items()]
    if len(parts) > 1 or (parts and ends_here):
        return f"(?:{'|'.join(parts)})" + "?" * bool(ends_here)
    return "".join(parts)

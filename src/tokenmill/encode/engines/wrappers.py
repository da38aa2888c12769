"""Engines around an engine, which change texts or send some of them elsewhere.

RoutedEngine      texts that the engine is known to get wrong go to the reference
AddedTokens       added tokens are found first, as the library does: the leftmost wins, and of
several that start there, the longest. Only for tokens without flags, which
match raw text, and for tokenizers that encode the text after a token like a
new one
PrefixedTexts     a space is put before texts
ComposingEngine   texts are normalized to NFC first
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import offsets_from_lengths, with_documents
from tokenmill.encode.engine import Engine
from tokenmill.encode.tokenizer_json import MARK


class _Around:
    """An engine around another one, with its name."""

    def __init__(self, engine: Engine) -> None:
        self.name, self.version = engine.name, engine.version
        self._engine = engine


class RoutedEngine(_Around):
    """An engine that routes some documents to its reference, which is loaded on first use."""

    def __init__(
        self,
        engine: Engine,
        is_wrong: Callable[[str], object],
        load_reference: Callable[[], Engine],
        *,
        in_ascii: bool = False,
    ) -> None:
        """`is_wrong` finds texts that `engine` gets wrong; ASCII ones only if `in_ascii`."""
        super().__init__(engine)
        self._is_wrong = is_wrong
        self._load_reference = load_reference
        self._reference: Engine | None = None
        self._in_ascii = in_ascii

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text; those that the routes find are encoded by the reference."""
        search, in_ascii = self._is_wrong, self._in_ascii
        routed = [
            i for i, text in enumerate(texts) if (in_ascii or not text.isascii()) and search(text)
        ]
        if not routed:
            return self._engine.encode(texts)
        self._reference = self._reference or self._load_reference()
        skipped = set(routed)
        exact = self._reference.encode([texts[i] for i in routed])
        plain = self._engine.encode(["" if i in skipped else t for i, t in enumerate(texts)])
        return with_documents(plain, routed, exact)


class AddedTokens(_Around):
    """Encodes the texts between added tokens with an engine."""

    def __init__(self, engine: Engine, ids: dict[str, int], as_text: set[str]) -> None:
        """Tokens in `as_text` are encoded like text, and only hide others inside them."""
        super().__init__(engine)
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


class PrefixedTexts(_Around):
    """Puts a space before every text, or before those that do not begin with a space or a ▁."""

    def __init__(self, engine: Engine, always: bool) -> None:
        super().__init__(engine)
        self._begun = () if always else (" ", MARK)

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text, in order; empty texts have none."""
        begun = self._begun
        return self._engine.encode(
            [f" {text}" if text and not text.startswith(begun) else text for text in texts]
        )


def added_contents(contents: Iterable[str]) -> Callable[[str], object]:
    """Return a function that finds texts with added tokens, before or after spaces become ▁."""
    marked = {text.replace(" ", MARK) for text in contents}
    search = re.compile(longest_of(marked)).search
    if not any(MARK in text for text in marked):  # replacing takes three times as long
        return search
    return lambda text: search(text.replace(" ", MARK))


class ComposingEngine(_Around):
    """An engine that normalizes texts to NFC before another engine encodes them."""

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text, in order."""
        return self._engine.encode([unicodedata.normalize("NFC", text) for text in texts])

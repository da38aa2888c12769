"""Normalize texts to NFC with Python's `unicodedata` before they are encoded."""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Sequence

import numpy as np

from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.engine import Engine


def composed(texts: Sequence[str]) -> list[str]:
    """Return the texts in NFC."""
    return [unicodedata.normalize("NFC", text) for text in texts]


class ComposingEngine:
    """An engine that normalizes texts to NFC before another engine encodes them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = engine.name
        self.version = engine.version

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text, in order."""
        return self._engine.encode(composed(texts))


def composed_with_places(text: str) -> tuple[str, Int64Array, Int64Array]:
    """Return a text in NFC, and the original characters behind each of its characters.

    Returns:
        The text, and two arrays of shape (len(text in NFC),): the first original character, and
        one past the last. If several characters change together, each result refers to all.
    """
    if unicodedata.is_normalized("NFC", text):
        places = np.arange(len(text), dtype=np.int64)
        return text, places, places + 1
    edges = [0, *(i for i in range(1, len(text)) if _begins(text[i])), len(text)]
    parts: list[str] = []
    starts: list[int] = []
    stops: list[int] = []
    for start, stop in itertools.pairwise(edges):
        part = unicodedata.normalize("NFC", text[start:stop])
        kept = part == text[start:stop]
        parts.append(part)
        starts += range(start, stop) if kept else [start] * len(part)
        stops += range(start + 1, stop + 1) if kept else [stop] * len(part)
    return "".join(parts), np.array(starts, np.int64), np.array(stops, np.int64)


@functools.lru_cache(maxsize=4096)
def _begins(character: str) -> bool:
    """Whether a character never changes together with the one before it."""
    first = unicodedata.normalize("NFD", character)[0]
    return unicodedata.combining(first) == 0 and first not in _followers()


@functools.cache
def _followers() -> frozenset[str]:
    """Return the characters that can compose with the one before them."""
    vowels, finals = range(0x1161, 0x1176), range(0x11A8, 0x11C3)  # of Hangul
    found = {chr(code) for code in (*vowels, *finals)}
    for code in range(0x110000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.add(chr(int(parts[1], 16)))
    return frozenset(found)

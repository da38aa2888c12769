"""Texts in Unicode's composed form (NFC), by Python's `unicodedata`, before they are encoded."""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Sequence

import numpy as np

from tokenmill.encode.engine import Engine
from tokenmill.records import Int64Array, TokenBatch


def composed(texts: Sequence[str]) -> list[str]:
    """The texts in NFC."""
    return [unicodedata.normalize("NFC", text) for text in texts]


class ComposingEngine:
    """An engine that is given texts in NFC; an Engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = engine.name
        self.version = engine.version

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of every text, in order."""
        return self._engine.encode(composed(texts))


def composed_with_places(text: str) -> tuple[str, Int64Array, Int64Array]:
    """A text in NFC, and what each of its characters is made of.

    Returns two arrays of shape (len(composed),): the first and one past the last character of the
    original. Where several characters become others, each of these is made of all of them.
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
    """Whether nothing before a character changes with it."""
    first = unicodedata.normalize("NFD", character)[0]
    return unicodedata.combining(first) == 0 and first not in _followers()


@functools.cache
def _followers() -> frozenset[str]:
    """Characters that compose with the one before them."""
    vowels, finals = range(0x1161, 0x1176), range(0x11A8, 0x11C3)  # of Hangul
    found = {chr(code) for code in (*vowels, *finals)}
    for code in range(0x110000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.add(chr(int(parts[1], 16)))
    return frozenset(found)

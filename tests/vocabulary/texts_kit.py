"""A throwaway corpus in four scripts: made-up words, the frequent ones short."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tokenmill.encode.splitters import LIBRARY, load_splitter
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import Split
from tokenmill.encode.words.table import WordTable

SYLLABLES = (
    "ba re to ning sha ver ko la mi the and".split(),
    "по ра ни ка ство да ле вы ер".split(),
    "นา ร์ กา ที่ ไป มา ปร".split(),
    "の 日 本 語 す ます か ら".split(),
)


def made_up_lines(count: int, seed: int = 0) -> list[str]:
    """Lines of words in one script each, with some digits and punctuation."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        syllables = draw.choice(SYLLABLES)
        words = []
        for _ in range(draw.randint(3, 12)):
            length = min(int(draw.expovariate(0.6)) + 1, 6)
            words.append("".join(draw.choice(syllables) for _ in range(length)))
        words.insert(draw.randint(0, len(words)), str(draw.randint(0, 2030)))
        lines.append(" ".join(words) + draw.choice([".", "?", "!", " …", ""]))
    return lines


def counted(texts: Iterable[str], split: Split) -> WordCounts:
    """The words that a split gives."""
    table = WordTable()
    load_splitter(split, LIBRARY, 0).count(list(texts), table)
    return table.take()

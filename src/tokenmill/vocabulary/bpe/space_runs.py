"""Tokens for runs of spaces: one token for each depth of indentation in code.

GPT-NeoX has runs of 2 to 24 spaces as added tokens (arXiv 2204.06745), which are matched before a
text is split into words. So the run takes the space of " return", and merges that the trainer
learned for spaces are never used (221 tokens of GPT-NeoX). Here runs are ordinary tokens, produced
by the first merges. So words do not change, every engine supports them, and all are reachable.

Runs are first merged to powers of two, from the left, and these to sums:

    1 1 1 1 1 1 1  ->  2 2 2 1  ->  4 2 1  ->  4 3  ->  7
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokenmill.core.records import Advance
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.learning import continue_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.symbols import Symbols, given_symbols

SPACE = 0x20


def run_merges(longest: int) -> list[tuple[int, int]]:
    """Return the merges that turn every run of 2 to `longest` spaces into one token.

    A merge is given by the numbers of spaces of its two runs.
    """
    powers = [1 << i for i in range(longest.bit_length()) if 2 << i <= longest]
    sums = [
        (power, rest)
        for power in (1 << i for i in range(1, longest.bit_length()))
        for rest in range(1, min(power, longest - power + 1))
    ]
    return [*((power, power) for power in powers), *sums]


def learn_merges_after_runs(
    words: WordCounts, symbols: Symbols, longest: int, options: MergeOptions, advance: Advance
) -> Merges:
    """Learn merges of bytes, after the merges for runs of up to `longest` spaces."""
    first = _runs(words, symbols, longest)
    runs = [" " * (left + right) for left, right in run_merges(longest)]
    space = symbols.strings[symbols.table[0, SPACE]]
    seeded = given_symbols(
        [*symbols.strings, *(space * len(run) for run in runs)],
        [*symbols.texts, *(run.encode() for run in runs)],
    )
    learnt = continue_merges(first.segment(symbols.segment(words)), seeded, options, advance)
    return Merges(
        symbols,
        np.concatenate([first.pairs, learnt.pairs]),
        np.concatenate([first.ids, learnt.ids]),
        np.concatenate([first.masses, learnt.masses]),
        first.num_symbols_in_corpus,
    )


def _runs(words: WordCounts, symbols: Symbols, longest: int) -> Merges:
    """Return the merges of runs, with how often each is applied in the corpus."""
    ids = {1: int(symbols.table[0, SPACE])}
    merges = run_merges(longest)
    for number, (left, right) in enumerate(merges):
        ids[left + right] = len(symbols) + number
    pairs = np.array([(ids[left], ids[right]) for left, right in merges], np.int32)
    made = np.arange(len(symbols), len(symbols) + len(merges), dtype=np.int32)
    runs = Merges(symbols, pairs, made, np.zeros(len(merges), np.int64), words.num_bytes)
    some = symbols.segment(_with_two_spaces(words))
    firsts = (replace(runs, pairs=runs.pairs[:n], ids=runs.ids[:n]) for n in range(len(merges) + 1))
    lengths = [first.segment(some).num_tokens for first in firsts]
    return replace(runs, masses=-np.diff(lengths))


def _with_two_spaces(words: WordCounts) -> WordCounts:
    """Return the words with two adjacent spaces, and some in which only the next word adds one."""
    spaces = np.flatnonzero((words.data[:-1] == SPACE) & (words.data[1:] == SPACE))
    return words.select(np.unique(np.searchsorted(words.offsets, spaces, side="right") - 1))

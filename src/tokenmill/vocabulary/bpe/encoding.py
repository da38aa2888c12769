"""Encode words with learned merges: in each word, merges are applied by rank."""

from __future__ import annotations

import numpy as np

from tokenmill.kernels.merges import MergeTable, merge_words
from tokenmill.kernels.pair_table import pair_table
from tokenmill.vocabulary.bpe.merges import Merges
from tokenmill.vocabulary.bpe.symbols import SegmentedWords

NO_DROPOUT = np.uint64(0)


def segment(words: SegmentedWords, merges: Merges) -> SegmentedWords:
    """Apply merges to words of symbols.

    Training applies one merge to all words at a time; this applies all merges to one word at a
    time, like an encoder.
    """
    lefts, rights = (np.ascontiguousarray(side) for side in merges.pairs.T)
    # Of merges that join the same pair, the last one wins, as in the library.
    table = pair_table(lefts, rights, np.arange(len(merges), dtype=np.int32))
    ids, offsets = merge_words(
        words.ids, words.offsets.copy(), MergeTable(table, merges.ids), NO_DROPOUT, NO_DROPOUT
    )
    return SegmentedWords(ids, offsets, words.counts, words.num_fixed, words.num_dropped)

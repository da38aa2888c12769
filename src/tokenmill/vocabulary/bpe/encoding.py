"""Words cut into tokens by learnt merges, as an encoder does it: in each word by rank."""

from __future__ import annotations

import numpy as np

from tokenmill.encode.subword.merges import MergeTable, merge_words
from tokenmill.encode.subword.pair_table import pair_table
from tokenmill.vocabulary.bpe.merges import Merges
from tokenmill.vocabulary.bpe.symbols import SegmentedWords

NO_DROPOUT = np.uint64(0)


def segment(words: SegmentedWords, merges: Merges) -> SegmentedWords:
    """Words of symbols as the tokens of a vocabulary.

    Training merges one pair in all words at a time, an encoder all pairs in one word at a time.
    """
    lefts, rights = (np.ascontiguousarray(side) for side in merges.pairs.T)
    # Of merges that join the same pair the last one counts, as in the library.
    table = pair_table(lefts, rights, np.arange(len(merges), dtype=np.int32))
    ids, offsets = merge_words(
        words.ids, words.offsets.copy(), MergeTable(table, merges.ids), NO_DROPOUT, NO_DROPOUT
    )
    return SegmentedWords(ids, offsets, words.counts, words.num_fixed, words.num_dropped)

"""WordLevel: the most frequent words are the vocabulary.

The same as `tokenizers.trainers.WordLevelTrainer`: by count, then by code points.
"""

from __future__ import annotations

import numpy as np

from tokenmill.words.counts import WordCounts


def most_frequent_words(words: WordCounts, size: int, min_frequency: int = 0) -> list[str]:
    """At most `size` words that occur `min_frequency` times or more, in the order of their ids.

    Words are characters: they come from a split that is not byte-level.
    """
    # Words are sorted, and UTF-8 sorts like code points; so a stable sort leaves ties in order.
    order = np.argsort(-words.counts, kind="stable")[:size]
    return [words.word(i).decode() for i in order if words.counts[i] >= min_frequency]

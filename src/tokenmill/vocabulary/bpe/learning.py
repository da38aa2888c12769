"""Learn byte-pair merges from counted words.

The merges equal those of `tokenizers.trainers.BpeTrainer`: the most frequent pair first; of equally
frequent pairs the one with the smaller left id, then the smaller right id. Overlapping pairs count
("aaa" has two), and pairs are merged from left to right.

R. Sennrich, B. Haddow, A. Birch: Neural machine translation of rare words with subword units, ACL
2016 (arXiv 1508.07909).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokenmill.core.records import Advance, Int32Array
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.heap import Heap
from tokenmill.vocabulary.bpe.kernel import (
    ANSWERED,
    ASKING,
    EXHAUSTED,
    FULL,
    HEAP_SIZE,
    NUM_MERGES,
    NUM_PAIRS,
    NUM_POSITIONS,
    NUM_TOKENS,
    STOPPED,
    Books,
    Limits,
    Merged,
    Neighbours,
    merge_pairs,
)
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.pairs import ID_BITS, ID_MASK, frequent_pairs
from tokenmill.vocabulary.bpe.slots import BLOCK_BITS, Slots, packed
from tokenmill.vocabulary.bpe.symbols import SegmentedWords, Symbols, require_countable
from tokenmill.vocabulary.bpe.token_hashes import add_strings, new_spelling

MERGES_A_CALL = 1000
"""Between calls of the kernel, progress is shown and Ctrl-C is handled."""
LEVEL = 256
"""Only pairs with at least 1 / LEVEL of the highest count are kept; then all are counted again."""
NO_LIMIT = 1 << 62


def learn_merges(
    words: WordCounts, symbols: Symbols, options: MergeOptions, advance: Advance | None = None
) -> Merges:
    """Learn the merges of words, starting from symbols.

    Raises:
        UserError: the counts are so large that their sum could overflow.
    """
    return _learn(symbols.segment(words), symbols, options, advance)


def continue_merges(
    words: SegmentedWords,
    symbols: Symbols,
    options: MergeOptions,
    advance: Advance | None = None,
) -> Merges:
    """Learn additional merges for a vocabulary, from words that it segmented.

    `symbols` are the tokens of the vocabulary; the ids of new tokens follow theirs.

    Raises:
        UserError: the counts are so large that their sum could overflow.
    """
    return _learn(replace(words, ids=words.ids.copy()), symbols, options, advance)


def _learn(
    words: SegmentedWords, symbols: Symbols, options: MergeOptions, advance: Advance | None
) -> Merges:
    """Learn merges; overwrites the ids of words."""
    require_countable(words.offsets, words.counts)
    num_symbols = words.num_tokens
    learner = _Learner(words, symbols, options)
    learner.run(advance or (lambda *_: None))
    num_merges = int(learner.books.sizes[NUM_MERGES])
    ids = np.ones(num_merges, np.int64)
    ids[list(learner.known.reused)] = 0
    ids = len(symbols) - 1 + np.cumsum(ids)
    ids[list(learner.known.reused)] = list(learner.known.reused.values())
    return Merges(
        symbols,
        learner.books.pairs[:num_merges].copy(),
        ids.astype(np.int32),
        learner.books.masses[:num_merges].copy(),
        num_symbols,
        words.num_dropped,
    )


class _Learner:
    """Runs the kernel: allocates its arrays, and resolves tokens with equal spellings."""

    def __init__(self, words: SegmentedWords, symbols: Symbols, options: MergeOptions) -> None:
        self.options = options
        self.minimum = max(options.min_frequency, 1)
        self.max_length = NO_LIMIT
        if options.max_token_length is not None:
            self.max_length = options.max_token_length
        # Each merge reduces the number of tokens by at least one.
        self.max_tokens = min(options.vocabulary_size, len(symbols) + len(words.ids))
        num_tokens = max(self.max_tokens, len(symbols))
        num_blocks = -(-len(words.ids) >> BLOCK_BITS)
        self.slots = packed(
            Slots(
                words.ids,
                np.ones(num_tokens, np.int32),
                words.offsets.copy(),
                words.counts.copy(),
                np.empty(num_blocks, np.int32),
            )
        )
        self.books = Books(
            np.empty((num_tokens - len(symbols), 2), np.int32),
            np.empty(num_tokens - len(symbols), np.int64),
            np.ones(num_tokens, np.int32),
            np.zeros(6, np.int64),
        )
        self.books.lengths[: len(symbols)] = symbols.lengths
        self.books.sizes[NUM_TOKENS] = len(symbols)
        self.neighbours = Neighbours(
            np.zeros((2, num_tokens), np.int64),
            np.zeros((2, num_tokens), np.int64),
            np.empty((2, num_tokens), np.int32),
            np.empty((2, num_tokens), np.int32),
        )
        self.spelling = new_spelling(num_tokens, symbols.prefix)
        add_strings(self.spelling, symbols.strings, 0, symbols.prefix)
        self.known = Spelled(symbols)

    def run(self, advance: Advance) -> None:
        """Merge until the vocabulary has its size, or no pair is frequent enough."""
        sizes = self.books.sizes
        first = int(sizes[NUM_TOKENS])
        while sizes[NUM_TOKENS] < self.max_tokens and self._count_pairs():
            reason = STOPPED
            while reason in (STOPPED, ASKING) and sizes[NUM_TOKENS] < self.max_tokens:
                advance("merges", int(sizes[NUM_TOKENS]) - first, self.max_tokens - first)
                reason = self._merge(MERGES_A_CALL)
                if reason == ASKING:
                    reason = self._answer()
            if reason == EXHAUSTED and self.threshold == self.minimum:
                break
            self.slots = packed(self.slots)
        done = int(sizes[NUM_TOKENS]) - first
        advance("merges", done, done)

    def _count_pairs(self) -> bool:
        """Index the frequent pairs; return whether there are any."""
        self.pairs, places, self.threshold = frequent_pairs(
            self.slots,
            self.books.lengths,
            self.max_length,
            lambda most: max(most // LEVEL, self.minimum),
        )
        number, longest = len(places), int(places.max(initial=0))
        self.heap = Heap(
            np.empty(len(self.pairs.keys), np.int64), np.empty_like(self.pairs.keys, np.int32)
        )
        # Pairs sorted from the largest count are already a heap.
        self.heap.counts[:number] = self.pairs.counts[:number]
        self.heap.pairs[:number] = np.arange(number)
        self.merged = Merged(
            np.empty(longest, np.int64), *(np.empty(longest, np.int32) for _ in range(3))
        )
        sizes = self.books.sizes
        sizes[NUM_PAIRS] = sizes[HEAP_SIZE] = number
        sizes[NUM_POSITIONS] = places.sum()
        return number > 0

    def _merge(self, number: int) -> int:
        """Learn a number of merges; return why the kernel stopped."""
        stop = int(self.books.sizes[NUM_MERGES]) + number
        return merge_pairs(
            self.slots,
            self.pairs,
            self.heap,
            self.spelling,
            (self.neighbours, self.merged),
            self.books,
            Limits(
                min(stop, len(self.books.pairs)), self.max_tokens, self.threshold, self.max_length
            ),
        )

    def _answer(self) -> int:
        """Learn the merge that the kernel stopped at, whose token may already exist.

        Returns why the kernel stopped.
        """
        sizes = self.books.sizes
        merge, new = int(sizes[NUM_MERGES]), int(sizes[NUM_TOKENS])
        key = int(self.pairs.keys[self.heap.pairs[0]])
        self.known.extend(self.books.pairs[:merge])
        string = self.known.joined(key >> ID_BITS, key & ID_MASK)
        token = self.known.ids.get(string)
        sizes[ANSWERED] = 1
        if token is None:
            add_strings(self.spelling, [string], new, self.known.prefix)
            return self._merge(1)
        self._merge(1)
        self.known.reused[merge] = token
        sizes[NUM_TOKENS] -= 1
        self.books.lengths[token] = self.books.lengths[new]
        self.slots = packed(self.slots, new, token)
        more = np.empty((1, 2), np.int32), np.empty(1, np.int64)
        self.books = self.books._replace(
            pairs=np.concatenate([self.books.pairs, more[0]]),
            masses=np.concatenate([self.books.masses, more[1]]),
        )
        return FULL


class Spelled:
    """The strings of tokens, for merges that may spell an existing token."""

    def __init__(self, symbols: Symbols) -> None:
        self.prefix = symbols.prefix
        self.strings = list(symbols.strings)
        self.ids = {string: i for i, string in enumerate(symbols.strings)}
        self.reused: dict[int, int] = {}
        """The existing token that a merge produces, by index of the merge."""
        self._num_merges = 0

    def joined(self, left: int, right: int) -> str:
        """Return the string of a merged pair."""
        return self.strings[left] + self.strings[right].removeprefix(self.prefix)

    def extend(self, pairs: Int32Array) -> None:
        """Record the tokens of all merges so far."""
        for left, right in pairs[self._num_merges :].tolist():
            if self._num_merges not in self.reused:
                string = self.joined(left, right)
                self.ids.setdefault(string, len(self.strings))
                self.strings.append(string)
            self._num_merges += 1

"""Learn byte-pair merges from counted words.

The merges equal those of `tokenizers.trainers.BpeTrainer`: the most frequent pair first; of equally
frequent pairs the one with the smaller left id, then the smaller right id. Overlapping pairs count
("aaa" has two), and pairs are merged from left to right.

Only pairs with at least a share of the highest count are indexed. Counts only fall, so no other
pair can be the most frequent one while any of these is left. Then all pairs are counted again. This
keeps tables small: most pairs of a corpus occur once or twice.

R. Sennrich, B. Haddow, A. Birch: Neural machine translation of rare words with subword units, ACL
2016 (arXiv 1508.07909).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance, Int64Array
from tokenmill.encode.words.counts import WordCounts
from tokenmill.kernels.pair_counts import (
    COUNT,
    ID_BITS,
    ID_MASK,
    PLACES,
    count_pairs,
    index_pairs,
    most_frequent,
)
from tokenmill.kernels.pair_merging import NUM_PAIRS, NUM_POSITIONS, Limits, Scratch, merge_pair
from tokenmill.kernels.word_slots import BLOCK_BITS, Slots, packed
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.symbols import SegmentedWords, Symbols, require_countable

MERGES_A_REPORT = 256
LEVEL = 256
"""Only pairs with at least 1 / LEVEL of the highest count are indexed."""
NO_LIMIT = 1 << 62
MAX_IDS = 1 << 31
"""The limit of token ids over all texts, which take half of a key."""


def learn_merges(
    words: WordCounts, symbols: Symbols, options: MergeOptions, advance: Advance | None = None
) -> Merges:
    """Learn the merges of words, starting from symbols.

    Raises:
        UserError: the counts are so large that their sum could overflow.
    """
    return continue_merges(symbols.segment(words), symbols, options, advance)


def continue_merges(
    words: SegmentedWords,
    symbols: Symbols,
    options: MergeOptions,
    advance: Advance | None = None,
) -> Merges:
    """Learn merges for a vocabulary, from words that it segmented.

    `symbols` are the tokens of the vocabulary; the ids of new tokens follow theirs.

    Raises:
        UserError: the counts are so large that their sum could overflow.
    """
    merging = Merging([words], symbols, options)
    while merging.room and merging.index_frequent(LEVEL):
        while merging.room and merging.is_indexed and (pair := merging.best(0)):
            merging.report(advance)
            merging.merge(*pair)
    merging.report(advance, last=True)
    return merging.merges()


class Merging:
    """Texts whose pairs of tokens are merged one after another.

    A text is a group of words with its own counts of pairs. The first texts have a heap each, which
    knows the most frequent pair.
    """

    def __init__(
        self,
        texts: Sequence[SegmentedWords],
        symbols: Symbols,
        options: MergeOptions,
        num_heaps: int = 1,
    ) -> None:
        num_ids = sum(len(text.ids) for text in texts)
        # Each merge reduces the number of ids by at least one.
        self.max_tokens = min(options.vocabulary_size, len(symbols) + num_ids)
        longest = options.max_token_length
        self.minimum = max(options.min_frequency, 1)
        self.threshold = 0
        self.limits = Limits(
            num_texts=len(texts),
            stride=max(self.max_tokens, len(symbols)),
            threshold=1,
            max_length=NO_LIMIT if longest is None else longest,
        )
        stride = self.limits.stride
        if len(texts) * stride >= MAX_IDS:
            raise UserError("there are too many tokens or groups")
        self._symbols, self._texts, self._num_heaps = symbols, texts, num_heaps
        self._slots = _slots_of(texts, stride)
        self._order = np.tile(np.arange(stride), len(texts))
        self._scratch = Scratch(
            np.zeros((2, stride), np.int64),
            np.zeros((2, stride), np.int64),
            np.empty((2, stride), np.int32),
            np.empty((2, stride), np.int32),
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            np.zeros(len(texts), np.int64),
            np.ones(len(texts) * stride, np.int32),
            np.zeros(2, np.int64),
        )
        self._of_texts(self._scratch.lengths)[:, : len(symbols)] = symbols.lengths
        self._strings = list(symbols.strings)
        self._ids = {string: i for i, string in enumerate(symbols.strings)}
        self._pairs_made: list[tuple[int, int]] = []
        self._ids_made: list[int] = []
        self._masses: list[int] = []
        self._sorted: list[str] = []
        self.is_indexed = False
        """Whether the indexed pairs hold the most frequent ones."""

    @property
    def room(self) -> int:
        """How many tokens are missing from the vocabulary."""
        return max(self.max_tokens - len(self._strings), 0)

    def report(self, advance: Advance | None, *, last: bool = False) -> None:
        """Report the progress, now and then."""
        done = len(self._strings) - len(self._symbols)
        if advance and (last or done % MERGES_A_REPORT == 0):
            advance("merges", done, done if last else done + self.room)

    def index_frequent(self, level: int) -> bool:
        """Index pairs with at least 1 / `level` of the highest count; False if there are none."""
        if self.is_indexed and self.threshold == self.minimum:
            return False
        entries = self._count()
        self.threshold = max(int(entries[:, COUNT].max()) // level, self.minimum)
        self._index(entries[entries[:, COUNT] >= self.threshold])
        self.limits = self.limits._replace(threshold=self.threshold)
        return bool(self._scratch.sizes[NUM_PAIRS])

    def index_all(self) -> None:
        """Index all pairs."""
        entries = self._count()
        self.threshold = self.minimum
        self._index(entries[entries[:, PLACES] > 0])

    def _count(self) -> Int64Array:
        """Give merged tokens one slot again, and count all pairs."""
        self._slots = packed(self._slots)
        return count_pairs(self._slots, self._scratch.lengths, self.limits.max_length)

    def _index(self, entries: Int64Array) -> None:
        heap_of = np.repeat(np.arange(self.limits.num_texts, dtype=np.int32), self.limits.stride)
        self._pairs, self._heaps = index_pairs(
            self._slots, entries, self._order, heap_of, self._num_heaps
        )
        longest = int(entries[:, PLACES].max(initial=0))
        self._scratch = self._scratch._replace(
            slots=np.empty(longest, np.int64),
            words=np.empty(longest, np.int32),
            lefts=np.empty(longest, np.int32),
            rights=np.empty(longest, np.int32),
        )
        self._scratch.sizes[NUM_PAIRS] = len(entries)
        self._scratch.sizes[NUM_POSITIONS] = entries[:, PLACES].sum()
        self.is_indexed = True

    def best(self, text: int) -> tuple[int, int] | None:
        """Return the most frequent of the indexed pairs; None if none is frequent enough."""
        pairs = self._pairs
        key = most_frequent(self._heaps, pairs.keys, pairs.counts, text, self.threshold)
        if key < 0:
            return None
        return (key >> ID_BITS) % self.limits.stride, (key & ID_MASK) % self.limits.stride

    def merge(self, left: int, right: int) -> Int64Array:
        """Merge a pair in all texts; return how often, shape (num_texts,).

        If the result is spelled like an existing token, it becomes that token.
        """
        string = self._strings[left] + self._strings[right].removeprefix(self._symbols.prefix)
        new = len(self._strings)
        token = self._ids.setdefault(string, new)
        if token == new and self._sorted:
            self._put_in_order(string, new)
        self.is_indexed = merge_pair(
            self._slots, self._pairs, self._heaps, self._scratch, (left, right, new), self.limits
        )
        masses = self._scratch.masses
        self._pairs_made.append((left, right))
        self._ids_made.append(token)
        self._masses.append(sum(masses[: self._num_heaps].tolist()))
        if token == new:
            self._strings.append(string)
        else:
            self._rename(new, token)
        return masses

    def _rename(self, old: int, token: int) -> None:
        """Give all occurrences of a token the id of another one, which may take other slots."""
        self.is_indexed = False
        self._slots = packed(self._slots)
        found = self._slots.ids % self.limits.stride == old
        self._slots.ids[found] += token - old
        lengths = self._of_texts(self._scratch.lengths)
        lengths[:, token] = lengths[:, old]

    def order_by_string(self) -> None:
        """Prefer larger strings among equally frequent pairs, not smaller ids."""
        self._sorted = sorted(self._strings)
        self._renumber()

    def _put_in_order(self, string: str, token: int) -> None:
        place = bisect(self._sorted, string)
        self._sorted.insert(place, string)
        order = self._of_texts(self._order)
        around = [self._ids[near] for near in self._sorted[max(place - 1, 0) : place + 2]]
        around.remove(token)
        numbers = [int(order[0, near]) for near in around]
        if place == 0:
            numbers.insert(0, numbers[0] + (1 << 31))
        if len(numbers) < 2:
            numbers.append(numbers[0] - (1 << 31))
        order[:, token] = sum(numbers) // 2
        if numbers[0] - numbers[1] < 2:
            self._renumber()

    def _renumber(self) -> None:
        """Space the numbers of all tokens evenly, so that there is room between them."""
        ids = [self._ids[string] for string in reversed(self._sorted)]
        self._of_texts(self._order)[:, ids] = np.arange(len(ids)) << ID_BITS

    def _of_texts(self, array: np.ndarray) -> np.ndarray:
        """Return an array over all ids as shape (num_texts, stride)."""
        return array.reshape(self.limits.num_texts, -1)

    def merges(self) -> Merges:
        """Return the merges so far; corpus figures are those of the texts with heaps."""
        counted = self._texts[: self._num_heaps]
        return Merges(
            self._symbols,
            np.array(self._pairs_made, np.int32).reshape(-1, 2),
            np.array(self._ids_made, np.int32),
            np.array(self._masses, np.int64),
            sum(text.num_tokens for text in counted),
            sum(text.num_dropped for text in counted),
        )


def _slots_of(texts: Sequence[SegmentedWords], stride: int) -> Slots:
    """Return the words of all texts, one after another, with ids of their own for each text."""
    sizes = np.concatenate([np.diff(text.offsets) for text in texts])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    counts = np.concatenate([text.counts for text in texts])
    require_countable(offsets, counts)
    bounds = np.cumsum([0, *(len(text.ids) for text in texts)])
    ids = np.concatenate([text.ids for text in texts]).astype(np.int32, copy=False)
    for number, (start, stop) in enumerate(pairwise(bounds.tolist())):
        ids[start:stop] += number * stride
    return Slots(
        ids,
        np.ones(len(texts) * stride, np.int32),
        offsets,
        counts,
        np.empty(-(-len(ids) >> BLOCK_BITS), np.int32),
    )

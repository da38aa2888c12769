"""Learn merges that compress all languages equally well: parity-aware byte-pair encoding.

Each merge is the most frequent pair of the language that currently has the most tokens, and is
applied to all languages. The merges equal those of `tokenizers.trainers.ParityBpeTrainer`; of
equally frequent pairs, the one with the larger strings comes first.

N. Foroutan et al.: Parity-Aware Byte-Pair Encoding: Improving Cross-lingual Fairness in
Tokenization, arXiv 2508.04796.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance, Int64Array
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.kernel import Merged, Neighbours
from tokenmill.vocabulary.bpe.merges import Merges
from tokenmill.vocabulary.bpe.pairs import ID_BITS, Pairs, count_pairs, indexed
from tokenmill.vocabulary.bpe.slots import BLOCK_BITS, Slots
from tokenmill.vocabulary.bpe.symbols import SegmentedWords, Symbols
from tokenmill.vocabulary.parity.kernel import (
    FULL,
    NUM_MERGES,
    NUM_PAIRS,
    NUM_POSITIONS,
    Books,
    Plan,
    merge_in_turns,
    note_text,
    queue_all,
)
from tokenmill.vocabulary.parity.options import ParityMerges, ParityOptions
from tokenmill.vocabulary.parity.queues import NONE, Queues, Strings
from tokenmill.vocabulary.parity.turns import NOBODY, Turns

MAX_TOKENS = 1 << 31
"""The limit of token ids over all texts, which take half of a key."""
NO_LIMIT = 1 << 62
MERGES_A_CALL = 1000
"""Between calls of the kernel, progress is shown and Ctrl-C is handled."""


def learn_parity_merges(
    groups: Mapping[str, WordCounts],
    symbols: Symbols,
    options: ParityOptions,
    *,
    dev: Mapping[str, WordCounts] | None = None,
    ratios: Mapping[str, float] | None = None,
    advance: Advance | None = None,
) -> ParityMerges:
    """Learn merges from the words of several languages.

    Each merge is chosen for the language compressed worst. With `dev`, words of the same content in
    every language, that is the language with the most tokens. With `ratios`, it is the language
    with the lowest compression relative to its ratio.

    Args:
        groups: The words of each language; their order breaks ties.
        symbols: The tokens before the first merge.
        options: See `ParityOptions`.
        dev: Words of parallel texts; may be `groups` if these have the same content.
        ratios: The wanted compression of each language. Give either `dev` or `ratios`.
        advance: Called with the progress.

    Raises:
        UserError: not exactly one of `dev` and `ratios` is given, or they have other languages; a
            ratio is not positive; there are too many tokens; a merge spells an existing token.
    """
    _check(groups, symbols, dev, ratios)
    languages = tuple(groups)
    words = [symbols.segment(groups[name]) for name in languages]
    texts = list(words)
    if dev is not None and any(dev[name] is not groups[name] for name in languages):
        texts += [symbols.segment(dev[name]) for name in languages]
    wanted = [ratios[name] for name in languages] if ratios else []
    learner = _Learner(texts, len(languages), symbols, options, wanted)
    learner.run(advance or (lambda *_: None))
    num_merges = int(learner.books.sizes[NUM_MERGES])
    merges = Merges(
        symbols,
        learner.books.pairs[:num_merges].copy(),
        np.arange(len(symbols), len(symbols) + num_merges, dtype=np.int32),
        learner.books.masses[:num_merges].copy(),
        sum(segmented.num_tokens for segmented in words),
        sum(segmented.num_dropped for segmented in words),
    )
    _refuse_equal_tokens(merges)
    turns = learner.turns
    return ParityMerges(
        merges,
        languages,
        learner.books.turns[:num_merges].copy(),
        np.stack([turns.initial, turns.lengths], axis=1),
        tuple(name for name, over in zip(languages, turns.exhausted, strict=True) if over),
    )


def _check(
    groups: Mapping[str, WordCounts],
    symbols: Symbols,
    dev: Mapping[str, WordCounts] | None,
    ratios: Mapping[str, float] | None,
) -> None:
    if (dev is None) == (ratios is None):
        raise UserError(
            "parity-aware merges need either development texts or ratios",
            why="they decide which language is compressed worst",
        )
    given = dev if dev is not None else ratios
    if not groups or given is None or set(given) != set(groups):
        raise UserError(
            "development texts or ratios must have the same languages as the training texts",
            why=f"got {', '.join(given or ())}; expected {', '.join(groups) or 'none'}",
        )
    for name, ratio in (ratios or {}).items():
        if not 0 < ratio < math.inf:
            raise UserError(f"the ratio of {name!r} must be greater than 0, got {ratio}")
    if symbols.prefix:
        raise UserError("parity-aware merges do not support tokens with a prefix")


def _refuse_equal_tokens(merges: Merges) -> None:
    """Raise a UserError if merges spell a special token, because the library confuses the two."""
    special = {string for string in merges.symbols.strings if len(string) > 1}
    for string in merges.strings()[len(merges.symbols) :]:
        if string in special:
            raise UserError(
                f"a merge spells the token {string!r}, which already exists",
                hint="choose a special token that does not occur in texts",
            )


class _Learner:
    """Runs the kernel: allocates its arrays, and enlarges them when it needs more room."""

    def __init__(
        self,
        texts: Sequence[SegmentedWords],
        num_languages: int,
        symbols: Symbols,
        options: ParityOptions,
        ratios: Sequence[float],
    ) -> None:
        lengths = [text.num_tokens - text.num_fixed for text in texts]
        texts = [_of_several_tokens(text) for text in texts]
        num_tokens = sum(len(text.ids) for text in texts)
        stride = len(symbols) + min(options.num_merges, num_tokens)
        self.plan = Plan(
            num_symbols=len(symbols),
            num_languages=num_languages,
            num_texts=len(texts),
            stride=stride,
            num_merges=stride - len(symbols),
            num_global=options.global_merges,
            threshold=max(options.min_frequency, 1),
            max_length=NO_LIMIT if options.max_token_length is None else options.max_token_length,
            most=options.alpha / num_languages,
        )
        if (len(texts) + 1) * stride >= MAX_TOKENS or sum(lengths) > NO_LIMIT:
            raise UserError("there are too many tokens or languages")
        self.slots = _joined_slots(texts, stride)
        self.turns = _turns(lengths[-num_languages:], ratios, options)
        self.books = Books(
            np.empty((self.plan.num_merges, 2), np.int32),
            np.empty(self.plan.num_merges, np.int64),
            np.empty(self.plan.num_merges, np.int32),
            np.ones(stride, np.int32),
            np.array([0, 0, 0, NOBODY], np.int64),
            np.zeros(4, np.int64),
        )
        self.books.lengths[: len(symbols)] = symbols.lengths
        self.neighbours = Neighbours(
            np.zeros((2, stride), np.int64),
            np.zeros((2, stride), np.int64),
            np.empty((2, stride), np.int32),
            np.empty((2, stride), np.int32),
        )
        self._index([len(text.counts) for text in texts], _spelled(symbols, stride))

    def _index(self, num_words: Sequence[int], strings: Strings) -> None:
        """Count the pairs of each text, record their positions, and queue them."""
        plan, bounds = self.plan, [0, *accumulate(num_words)]
        counted = []
        for text, (first, last) in enumerate(pairwise(bounds)):
            words = self.slots._replace(
                offsets=self.slots.offsets[first : last + 1], counts=self.slots.counts[first:last]
            )
            keys, counts, places = count_pairs(words, self.books.lengths, plan.max_length)
            counted.append((keys + ((text * plan.stride) << ID_BITS), counts, places))
        if plan.num_global:
            counted.append(_together(counted[: plan.num_languages], plan))
        keys, counts, places = (np.concatenate(arrays) for arrays in zip(*counted, strict=True))
        starts = np.cumsum(places) - places
        num_pairs, num_positions = len(keys), int(places.sum())
        self.pairs = Pairs(
            indexed(keys, _num_slots(num_pairs)),
            keys,
            counts,
            starts,
            np.zeros(num_pairs, np.int64),
            np.empty(num_positions, np.int64),
        )
        for text, bound in enumerate(pairwise(bounds)):
            note_text(self.slots, self.pairs, bound, text * plan.stride)
        self.queues = Queues(
            np.full(plan.num_languages + 1, NONE, np.int32),
            np.zeros(num_pairs, np.int64),
            np.full(num_pairs, NONE, np.int32),
            np.full(num_pairs, NONE, np.int32),
            strings,
            plan.stride,
        )
        self.books.sizes[NUM_PAIRS] = num_pairs
        self.books.sizes[NUM_POSITIONS] = num_positions
        queue_all(self.pairs, self.queues, self.books, plan)
        self.merged = Merged(np.empty(0, np.int64), *[np.empty(0, np.int32)] * 3)

    def run(self, advance: Advance) -> None:
        """Merge until there are enough merges, or no pairs are left."""
        sizes, goal = self.books.sizes, self.plan.num_merges
        while sizes[NUM_MERGES] < goal:
            advance("merges", int(sizes[NUM_MERGES]), goal)
            stop = min(int(sizes[NUM_MERGES]) + MERGES_A_CALL, goal)
            if self._merge(stop) == FULL:
                self._make_room()
            elif sizes[NUM_MERGES] < stop:
                break
        advance("merges", int(sizes[NUM_MERGES]), int(sizes[NUM_MERGES]))

    def _merge(self, stop: int) -> int:
        """Merge up to a number of merges; return why the kernel stopped."""
        return merge_in_turns(
            self.slots,
            self.pairs,
            self.queues,
            (self.neighbours, self.merged),
            self.turns,
            self.books,
            self.plan._replace(num_merges=stop),
        )

    def _make_room(self) -> None:
        """Enlarge the arrays that may be too small for the next merge."""
        pairs, positions, places, points = (int(number) for number in self.books.wanted)
        if pairs > len(self.pairs.keys):
            names = ("keys", "counts", "starts", "lengths")
            longer = {name: _longer(getattr(self.pairs, name), pairs) for name in names}
            keys = longer["keys"][: int(self.books.sizes[NUM_PAIRS])]
            table = indexed(keys, _num_slots(len(longer["keys"])))
            self.pairs = self.pairs._replace(table=table, **longer)
            links = ("counts", "children", "siblings")
            self.queues = self.queues._replace(
                **{name: _longer(getattr(self.queues, name), pairs) for name in links}
            )
        self.pairs = self.pairs._replace(positions=_longer(self.pairs.positions, positions))
        strings = self.queues.strings
        longer_strings = strings._replace(points=_longer(strings.points, points))
        self.queues = self.queues._replace(strings=longer_strings)
        self.merged = Merged(*(_longer(array, places) for array in self.merged))


def _longer(array: Any, needed: int) -> Any:
    """Return the array, or a longer copy if it is too short."""
    if needed <= len(array):
        return array
    longer = np.empty(2 * needed, array.dtype)
    longer[: len(array)] = array
    return longer


def _num_slots(num_pairs: int) -> int:
    """Return the number of slots of a table for this many pairs."""
    return 1 << max(2 * num_pairs - 1, 1).bit_length()


def _of_several_tokens(text: SegmentedWords) -> SegmentedWords:
    """Return the words of several tokens; others cannot merge."""
    sizes = np.diff(text.offsets)
    kept = sizes > 1
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[kept])])
    return SegmentedWords(text.ids[np.repeat(kept, sizes)], offsets, text.counts[kept])


def _joined_slots(texts: Sequence[SegmentedWords], stride: int) -> Slots:
    """Return the words of all texts, concatenated."""
    sizes = [np.diff(text.offsets) for text in texts]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes))])
    every = np.arange(0, offsets[-1], 1 << BLOCK_BITS)
    return Slots(
        np.concatenate([text.ids for text in texts]),
        np.ones(stride, np.int32),
        offsets,
        np.concatenate([text.counts for text in texts]),
        (np.searchsorted(offsets, every, side="right") - 1).astype(np.int32),
    )


def _spelled(symbols: Symbols, stride: int) -> Strings:
    points = np.array([ord(point) for string in symbols.strings for point in string], np.int32)
    starts = np.zeros(stride + 1, np.int64)
    starts[1 : len(symbols) + 1] = np.cumsum([len(string) for string in symbols.strings])
    return Strings(points, starts)


def _turns(num_tokens: Sequence[int], ratios: Sequence[float], options: ParityOptions) -> Turns:
    """Return the initial turns; `num_tokens` are those of each language's deciding text."""
    lengths = np.array(num_tokens, np.int64)
    in_window = options.variant == "window"
    return Turns(
        lengths=lengths.copy(),
        initial=lengths,
        ratios=np.array(ratios, np.float64),
        # An empty text has no pairs, and its compression would be a division by zero.
        exhausted=(lengths == 0) & bool(ratios),
        recent=np.zeros(options.window if in_window else 0, np.int32),
        num_recent=np.zeros(len(lengths), np.int64),
        passed=np.zeros(len(lengths), np.bool_),
        num_turns=np.zeros(1, np.int64),
    )


def _together(
    counted: Sequence[tuple[Int64Array, Int64Array, Int64Array]], plan: Plan
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the pairs of all languages, with their total counts and no positions."""
    keys = [keys - ((i * plan.stride) << ID_BITS) for i, (keys, *_) in enumerate(counted)]
    found, places = np.unique(np.concatenate(keys), return_inverse=True)
    counts = np.zeros(len(found), np.int64)
    np.add.at(counts, places, np.concatenate([counts for _, counts, _ in counted]))
    shift = (plan.num_texts * plan.stride) << ID_BITS
    return found + shift, counts, np.zeros(len(found), np.int64)

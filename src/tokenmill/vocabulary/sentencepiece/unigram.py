"""Train a Unigram model on counted words, in the way of SentencePiece.

    seeds          the characters, and the frequent substrings of `seeds.py`
    expectation    how often each piece is expected in the words, over all segmentations
    maximization   scores from these counts; a piece that is expected less than 0.5 times goes
    pruning        a quarter of the pieces goes, those without which the words lose least likelihood

Two rounds of expectation and maximization precede each pruning, until at most a tenth too many are
left. The best scores fill the vocabulary. The library adds in float32, and its newest release
prunes a little differently: some percent of the pieces differ.

Sources: T. Kudo: Subword regularization, ACL 2018 (arXiv 1804.10959); unigram_model_trainer.cc of
SentencePiece; for the scores, P. Liang and D. Klein: Structured Bayesian Nonparametric Models with
Variational Inference, ACL 2007.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance, BoolArray, FloatArray
from tokenmill.encode.tokenizer_json import BYTES
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.sentencepiece import BYTE, CONTROL, UNKNOWN, Piece
from tokenmill.kernels.double_array import double_array
from tokenmill.kernels.unigram import UNKNOWN_PENALTY
from tokenmill.kernels.unigram_training import (
    Pieces,
    Texts,
    best_counts,
    expected_counts,
    losses,
)
from tokenmill.vocabulary.bpe.symbols import characters_of
from tokenmill.vocabulary.sentencepiece.seeds import find_seeds
from tokenmill.vocabulary.sentencepiece.trainer_options import SentencePieceOptions

SPARE = 1.1
"""Pruning ends with this many times the wanted pieces."""
KEPT_SHARE = 0.75
ROUNDS = 2
LEAST_EXPECTED = 0.5
SCORE_STEP = 1e-4
"""By how much the scores of characters differ that were pruned, and are pieces nevertheless."""
MAX_NODES = 1 << 23


def learn_unigram_pieces(
    words: WordCounts, options: SentencePieceOptions, advance: Advance
) -> list[Piece]:
    """Return all pieces of a model by id: special and byte pieces, then the others, best first.

    Raises:
        UserError: the characters alone need more pieces, or the words give fewer.
    """
    reserved = _reserved(options)
    characters = covered_characters(words, options.character_coverage)
    if len(reserved) + len(characters) > options.vocabulary_size:
        raise too_small(options, len(reserved) + len(characters))
    seeds = find_seeds(words, options)
    counts = dict(characters)
    for piece, count in zip(seeds.pieces, seeds.counts.tolist(), strict=True):
        if characters.keys() >= set(piece):
            counts[piece] = count * len(piece)
    if len(reserved) + len(counts) < options.vocabulary_size:
        raise not_enough(options, len(reserved) + len(counts))
    learner = _Learner(words, counts)
    most = int(options.vocabulary_size * SPARE)
    excess = max(len(counts) - most, 0)
    while True:
        for _ in range(ROUNDS):
            learner.fit()
        advance("pruning", min(len(counts) - learner.size, excess), excess)
        if learner.size <= most:
            wanted = options.vocabulary_size - len(reserved)
            return reserved + learner.best(len(characters), wanted)
        learner.prune(max(most, int(KEPT_SHARE * learner.size)))


def covered_characters(words: WordCounts, coverage: float) -> dict[str, int]:
    """Return the most frequent characters that make up a share of the text, and their counts."""
    counts = characters_of(words)[0]
    found = np.flatnonzero(counts)
    order = found[np.argsort(-counts[found], kind="stable")]
    before = np.cumsum(counts[order]) - counts[order]
    kept = order[before < coverage * counts.sum()]
    return {chr(code): int(counts[code]) for code in kept.tolist()}


def too_small(options: SentencePieceOptions, needed: int) -> UserError:
    """The error for a vocabulary that its characters and special pieces do not fit."""
    return UserError(
        f"a vocabulary of {options.vocabulary_size:,} pieces is too small",
        why=f"with a character coverage of {options.character_coverage}, characters and "
        f"special pieces alone need {needed:,}",
        hint="choose a larger vocabulary, or a lower coverage with byte fallback",
    )


def not_enough(options: SentencePieceOptions, possible: int) -> UserError:
    """The error for words that give too few pieces."""
    return UserError(
        f"the words are not enough for {options.vocabulary_size:,} pieces",
        why=f"only {possible:,} possible pieces occur twice or are single characters",
        hint=f"choose a vocabulary size of at most {possible:,}, or use more text",
    )


def _reserved(options: SentencePieceOptions) -> list[Piece]:
    """The pieces that are not learned."""
    types = {"unk": UNKNOWN}
    pieces = [Piece(name, 0.0, types.get(role, CONTROL)) for role, name in options.specials.items()]
    pieces += [Piece(name, 0.0, CONTROL) for name in options.control_symbols]
    return pieces + [Piece(name, 0.0, BYTE) for name in BYTES if options.byte_fallback]


class _Learner:
    """The pieces that are left, and their scores. The first ones are the characters."""

    def __init__(self, words: WordCounts, counts: Mapping[str, int]) -> None:
        data = [name.encode() for name in counts]
        offsets = np.cumsum([0, *map(len, data)], dtype=np.int64)
        joined = np.frombuffer(b"".join(data), np.uint8)
        seen = np.array([*counts.values()], np.float64)
        self._names: Sequence[str] = [*counts]
        self._words = Texts(words.data, words.offsets, words.counts)
        self._own = Texts(joined, offsets, np.ones(len(data), np.int64))
        self._nodes = double_array({name: i for i, name in enumerate(data)}, MAX_NODES)
        self._scores: FloatArray = np.log(seen / seen.sum())

    @property
    def size(self) -> int:
        """The number of pieces that are left."""
        return int(self._left.sum())

    @property
    def _left(self) -> BoolArray:
        left: BoolArray = self._scores > -np.inf
        return left

    @property
    def _pieces(self) -> Pieces:
        unknown = self._scores[self._left].min() - UNKNOWN_PENALTY
        return Pieces(self._nodes, np.append(self._scores, unknown))

    def fit(self) -> None:
        """Give each piece the score that its expected count suggests."""
        expected = expected_counts(self._words, self._pieces)[:-1]
        kept = expected >= LEAST_EXPECTED
        scores = np.full(len(kept), -np.inf)
        scores[kept] = _digamma(expected[kept]) - _digamma(expected[kept].sum())
        self._scores = _rounded(scores)

    def prune(self, size: int) -> None:
        """Keep the pieces without which the likelihood would fall most."""
        pieces = self._pieces
        lost = _rounded(losses(self._own, pieces, best_counts(self._words, pieces)))
        order = np.argsort(-lost, kind="stable")
        goes = np.ones(len(lost), np.bool_)
        goes[order[: max(size, int(np.isposinf(lost).sum()))]] = False
        self._scores = np.where(goes | np.isneginf(lost), -np.inf, self._scores)

    def best(self, num_characters: int, wanted: int) -> list[Piece]:
        """Return all characters and the other pieces with the best scores, best first."""
        scores = self._scores.copy()
        missing = np.flatnonzero(~self._left[:num_characters])
        scores[missing] = scores[self._left].min() + SCORE_STEP * np.arange(len(missing))
        others = np.argsort(-scores[num_characters:], kind="stable") + num_characters
        chosen = [*range(num_characters), *others[: wanted - num_characters].tolist()]
        made = [Piece(self._names[i], float(scores[i])) for i in chosen if scores[i] > -np.inf]
        return sorted(made, key=lambda piece: (-piece.score, piece.text))


def _rounded(values: FloatArray) -> FloatArray:
    """Round to float32: the last bits of logarithms differ between processors, and would break
    ties.
    """
    return values.astype(np.float32).astype(np.float64)


def _digamma(values: FloatArray) -> FloatArray:
    """The derivative of the logarithm of the gamma function, by its asymptotic series."""
    shifted, before = np.array(values, np.float64), np.zeros(np.shape(values))
    while (small := shifted < 7).any():
        before = np.where(small, before - 1 / np.maximum(shifted, LEAST_EXPECTED), before)
        shifted = np.where(small, shifted + 1, shifted)
    middle = shifted - 0.5
    square = 1 / middle**2
    series = square / 24 - 7 / 960 * square**2 + 31 / 8064 * square**3 - 127 / 30720 * square**4
    return before + np.log(middle) + series

"""Expected counts, best segmentations and losses, against all segmentations one by one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.kernels.double_array import double_array
from tokenmill.kernels.unigram_training import (
    Pieces,
    Texts,
    best_counts,
    expected_counts,
    losses,
)

UNKNOWN_SCORE = -15.0
scores = st.floats(-9, -0.5, allow_nan=False)
vocabularies = st.dictionaries(st.text("abé", min_size=1, max_size=3), scores, min_size=1)
words = st.dictionaries(st.text("abé日", min_size=1, max_size=7), st.integers(1, 9), min_size=1)


def texts_of(counts: dict[str, int]) -> Texts:
    data = [word.encode() for word in counts]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int64)
    return Texts(np.frombuffer(b"".join(data), np.uint8), offsets, np.array([*counts.values()]))


def pieces_of(vocabulary: dict[str, float]) -> Pieces:
    ids = {piece.encode(): number for number, piece in enumerate(vocabulary)}
    return Pieces(double_array(ids, 1 << 16), np.array([*vocabulary.values(), UNKNOWN_SCORE]))


def segmentations(word: str, vocabulary: dict[str, float]) -> Iterator[list[str]]:
    """Every one; "?" is a character that is no token."""
    if not word:
        yield []
    for stop in range(1, len(word) + 1):
        known = word[:stop] in vocabulary
        if known or stop == 1:
            for rest in segmentations(word[stop:], vocabulary):
                yield [word[:stop] if known else "?", *rest]


def score(path: list[str], vocabulary: dict[str, float]) -> float:
    return sum(vocabulary.get(piece, UNKNOWN_SCORE) for piece in path)


@settings(deadline=None)
@given(words, vocabularies)
def test_expected_counts_are_those_of_all_segmentations(
    counts: dict[str, int], vocabulary: dict[str, float]
) -> None:
    wanted: Counter[str] = Counter()
    for word, count in counts.items():
        paths = [*segmentations(word, vocabulary)]
        weights = [math.exp(score(path, vocabulary)) for path in paths]
        for path, weight in zip(paths, weights, strict=True):
            for piece in path:
                wanted[piece] += count * weight / sum(weights)
    found = expected_counts(texts_of(counts), pieces_of(vocabulary))
    assert found == pytest.approx([wanted[piece] for piece in [*vocabulary, "?"]])


@settings(deadline=None)
@given(words, vocabularies)
def test_the_best_segmentations_have_the_best_score(
    counts: dict[str, int], vocabulary: dict[str, float]
) -> None:
    best = sum(
        count * max(score(path, vocabulary) for path in segmentations(word, vocabulary))
        for word, count in counts.items()
    )
    pieces = pieces_of(vocabulary)
    assert best_counts(texts_of(counts), pieces) @ pieces.scores == pytest.approx(best)


def test_long_words_do_not_underflow() -> None:
    pieces = pieces_of({"a": -20.0, "aa": -40.0})
    for size in (4_096, 4_097):
        found = expected_counts(texts_of({"a" * size: 3}), pieces)
        assert found @ np.array([1, 2, 1]) == pytest.approx(3 * size)
        assert found[0] > 0 < found[1]


def test_removed_tokens_take_no_part() -> None:
    pieces = pieces_of({"a": -1.0, "b": -1.0, "ab": -math.inf})
    assert expected_counts(texts_of({"ab": 2}), pieces).tolist() == [2, 2, 0, 0]


def test_a_loss_compares_a_token_with_its_best_other_segmentation() -> None:
    vocabulary = {"a": -2.0, "b": -2.0, "ab": -1.0, "ba": -9.0, "aab": -8.0}
    counts = np.array([3.0, 5, 4, 1, 0, 0])
    found = losses(texts_of(dict.fromkeys(vocabulary, 1)), pieces_of(vocabulary), counts)
    ours, theirs = math.log(4 / 13), math.log(3 + 4) + math.log(5 + 4) - 2 * math.log(13 + 4)
    assert found.tolist() == [
        *(math.inf, math.inf),
        pytest.approx(4 * (ours - theirs)),
        -math.inf,  # "b" and "a" have a better score
        -math.inf,  # it has no count
    ]

"""Merges equal those of the `tokenizers` library, wherever that is repeatable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.core.errors import UserError
from tokenmill.encode.words.counts import WordCounts
from tokenmill.kernels import pair_counts as pairs
from tokenmill.vocabulary.bpe import learning
from tokenmill.vocabulary.bpe.learning import continue_merges, learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.symbols import (
    Alphabet,
    byte_symbols,
    character_symbols,
    given_symbols,
)
from vocabulary.bpe.library_kit import (
    SPACES,
    encoder,
    library,
    ours,
    standard_library,
    words_of,
)

STRANGE = [
    "low lower newest widest aaaa abab aaaaaaa",
    "\n\n\n  \t\t   indented\r\n\r\n",
    "日本語のテキスト、日本語。한국어 텍스트 ภาษาไทย हिन्दी עברית",
    "😀😀😀👩‍👩‍👧‍👦🏳️‍🌈 e\u0301e\u0301é \u0000\u0000 \ufeff\u00ad ༀ𝔘",
    "x" * 3000 + " " + "xy" * 1500 + " " + " " * 500,
]


def learn(words: WordCounts, size: int, **options: Any) -> Merges:
    return learn_merges(words, byte_symbols(), MergeOptions(vocabulary_size=size, **options))


@pytest.mark.parametrize("size", [257, 4000])
def test_source_code_gives_the_same_merges(size: int) -> None:
    texts = [*standard_library(12), *STRANGE]
    assert ours(learn(words_of(texts), size)) == library(texts, vocab_size=size)


WORDS = st.lists(st.text("ab", min_size=1, max_size=9) | st.text("abc", min_size=1), max_size=12)


@settings(max_examples=300, deadline=None)
@given(
    WORDS,
    st.integers(0, 40),
    st.integers(0, 3),
    st.none() | st.integers(0, 6),
    st.lists(st.sampled_from(["<s>", "a", "c", "ab", "aab", "bb", "é"]), max_size=3),
)
@example(["aaaaaaa", "aaaa", "aaa"], 40, 0, None, [])
@example(["abababab", "ababa"], 40, 0, None, [])
@example(["ab", "ab", "abb"], 40, 0, None, ["ab"])
def test_words_of_two_letters_with_ties_overlaps_and_tokens_that_exist(
    words: list[str],
    size: int,
    min_frequency: int,
    max_token_length: int | None,
    special_tokens: list[str],
) -> None:
    counts = words_of([" ".join(words)], SPACES)
    merges = learn_merges(
        counts,
        character_symbols(counts, Alphabet(), special_tokens),
        MergeOptions(
            vocabulary_size=size, min_frequency=min_frequency, max_token_length=max_token_length
        ),
    )

    assert ours(merges) == library(
        [" ".join(words)],
        SPACES,
        vocab_size=size,
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        special_tokens=special_tokens,
    )


def test_counts_that_could_overflow_are_refused() -> None:
    words = WordCounts.of({b"ab": 1 << 61, b"cd": 1 << 60})
    assert len(learn(WordCounts.of({b"ab": 1 << 60}), 300)) == 1

    with pytest.raises(UserError, match="the word counts are too large"):
        learn(words, 300)
    with pytest.raises(UserError, match="the word counts are too large"):
        character_symbols(words, Alphabet())


@settings(max_examples=60, deadline=None)
@given(WORDS, st.integers(1, 3), st.integers(0, 2))
def test_counting_anew_in_between_changes_nothing(words: list[str], level: int, room: int) -> None:
    counts = words_of([" ".join(words)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "LEVEL", level)
        patch.setattr(pairs, "MORE_PAIRS", room)
        often = learn(counts, 300)

    once = learn(counts, 300)
    assert (ours(often), often.masses.tolist()) == (ours(once), once.masses.tolist())


@pytest.mark.soak  # another signature of the kernel takes seconds to compile
def test_slots_beyond_32_bits_are_noted_in_64(monkeypatch: pytest.MonkeyPatch) -> None:
    words = words_of(STRANGE)
    narrow = learn(words, 400)
    monkeypatch.setattr(pairs, "MAX_NARROW_SLOTS", 0)

    assert ours(learn(words, 400)) == ours(narrow)


def test_every_smaller_vocabulary_is_a_beginning() -> None:
    texts = [*standard_library(12), *STRANGE]
    words = words_of(texts)
    merges = learn(words, 3000)
    lengths = merges.corpus_lengths()
    for size in (257, 300, 1000, 3000):
        cut = merges.cut(size)

        assert ours(cut) == ours(learn(words, size))
        encoded = sum(len(tokens) for tokens in encoder(cut).encode_batch(texts))
        in_words = cut.segment(byte_symbols().segment(words))
        assert lengths[size - 256] == cut.num_tokens() == encoded == in_words.num_tokens


@settings(max_examples=60, deadline=None)
@given(WORDS, st.integers(0, 6), st.none() | st.integers(0, 6))
def test_a_vocabulary_is_continued_where_it_ended(
    words: list[str], num_merges: int, max_token_length: int | None
) -> None:
    counts = words_of([" ".join(words)])
    options = MergeOptions(vocabulary_size=300, max_token_length=max_token_length)
    whole = learn_merges(counts, byte_symbols(), options)
    first = whole.cut(256 + num_merges)
    begun = first.segment(byte_symbols().segment(counts))
    rest = continue_merges(begun, given_symbols(first.strings(), first.texts()), options)

    assert np.concatenate([first.pairs, rest.pairs]).tolist() == whole.pairs.tolist()
    assert np.concatenate([first.ids, rest.ids]).tolist() == whole.ids.tolist()
    assert np.concatenate([first.masses, rest.masses]).tolist() == whole.masses.tolist()
    assert rest.num_symbols_in_corpus == first.num_tokens()


def test_progress_is_shown_up_to_the_last_merge() -> None:
    seen: list[Any] = []
    words = words_of(standard_library(12))
    options = MergeOptions(vocabulary_size=2000)
    learn_merges(words, byte_symbols(), options, lambda *step: seen.append(step))

    assert seen[0] == ("merges", 0, 1744)
    assert seen[-1] == ("merges", 1744, 1744)

"""Alphabets: which characters become symbols, in which order, and what happens to all others."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.learning import learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.symbols import (
    Alphabet,
    SegmentedWords,
    Symbols,
    byte_symbols,
    character_symbols,
)
from vocabulary.bpe.library_kit import SPACES, library, ours, words_of

MANY = 10_000


def learn(words: WordCounts, symbols: Symbols, size: int = MANY) -> Merges:
    return learn_merges(words, symbols, MergeOptions(vocabulary_size=size))


def spelled(symbols: Symbols, words: SegmentedWords) -> list[tuple[list[str], int]]:
    return [
        ([symbols.strings[token] for token in words.ids[start:stop]], int(count))
        for start, stop, count in zip(
            words.offsets[:-1], words.offsets[1:], words.counts, strict=True
        )
    ]


def test_bytes_are_in_the_order_of_the_characters_that_spell_them() -> None:
    symbols = byte_symbols()

    assert symbols.strings[:3] == ("!", '"', "#")
    assert symbols.strings[-2:] == ("ł", "Ń")
    assert symbols.texts[symbols.strings.index("Ġ")] == b" "
    assert sorted(symbols.texts) == [bytes([byte]) for byte in range(256)]


def test_special_tokens_have_the_first_ids() -> None:
    texts = ["<s> low low lower the the é"]
    specials = ["<s>", "the", "é", "<s>"]
    merges = learn(words_of(texts), byte_symbols(specials))

    assert ours(merges) == library(texts, vocab_size=MANY, special_tokens=specials)
    assert merges.strings()[:3] == ["<s>", "the", "é"]


ALPHABETS = [
    Alphabet(),
    Alphabet(limit=40),
    Alphabet(limit=12),
]


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_the_alphabet_is_that_of_the_library(alphabet: Alphabet) -> None:
    # Every character occurs in a number of its own, so that no tie is cut.
    texts = [chr(97 + i % 26) * (i + 1) + " " + chr(0x430 + i) * (50 + i) for i in range(26)]
    texts += ["the quick brown fox " * 100]
    words = words_of(texts, SPACES)
    merges = learn(words, character_symbols(words, alphabet), 150)

    limit = alphabet.limit or MANY
    assert ours(merges) == library(texts, SPACES, vocab_size=150, limit_alphabet=limit)


def test_of_characters_equally_frequent_the_smaller_code_points_are_kept() -> None:
    words = WordCounts.of({b"dcba": 2, b"ee": 3})
    symbols = character_symbols(words, Alphabet(limit=3))
    segmented = symbols.segment(words)

    assert symbols.strings == ("a", "b", "e")
    assert spelled(symbols, segmented) == [(["b", "a"], 2), (["e", "e"], 3)]
    assert (segmented.num_tokens, segmented.num_dropped) == (10, 4)
    assert learn(words, symbols).num_dropped == 4


def test_characters_that_fall_back_become_bytes_which_never_merge() -> None:
    words = WordCounts.of({"aéb".encode(): 9, "éé".encode(): 2, b"ab": 7})
    symbols = character_symbols(words, Alphabet(limit=2, byte_fallback=True))
    segmented = symbols.segment(words)
    merges = learn(words, symbols)

    assert symbols.strings[:2] == ("<0x00>", "<0x01>")
    assert symbols.strings[256:] == ("a", "b")
    assert spelled(symbols, segmented) == [(["a", "b"], 7), (["a"], 9), (["b"], 9)]
    assert segmented.num_fixed == 2 * 9 + 4 * 2
    assert merges.strings()[258:] == ["ab"]
    assert merges.num_tokens() == 7 + 2 * 9 + segmented.num_fixed


def test_prefixes_are_spelled_as_the_library_does() -> None:
    words = WordCounts.of({b"low": 15, b"lower": 4, b"x": 1, "é".encode(): 1})
    symbols = character_symbols(words, Alphabet(limit=6, prefix="##"))

    assert symbols.strings == ("e", "l", "o", "r", "w", "x", "##e", "##o", "##r", "##w")
    assert symbols.texts[6:] == (b"e", b"o", b"r", b"w")
    assert spelled(symbols, symbols.segment(words)) == [
        (["l", "##o", "##w"], 15),
        (["l", "##o", "##w", "##e", "##r"], 4),
        (["x"], 1),
    ]


def by_hand(words: WordCounts, symbols: Symbols, size: int) -> list[tuple[int, int, int]]:
    """Pairs and the ids that they make, by counting all pairs anew after each merge."""
    segmented = symbols.segment(words)
    edges = zip(segmented.offsets[:-1], segmented.offsets[1:], strict=True)
    texts = [segmented.ids[start:stop].tolist() for start, stop in edges]
    strings = {string: i for i, string in enumerate(symbols.strings)}
    merges = []
    while len(strings) < size:
        pairs: Counter[tuple[int, int]] = Counter()
        for text, count in zip(texts, segmented.counts.tolist(), strict=True):
            for pair in pairwise(text):
                pairs[pair] += count
        if not pairs:
            break
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        names = list(strings)
        string = names[left] + names[right].removeprefix(symbols.prefix)
        token = strings.setdefault(string, len(strings))
        merges.append((left, right, token))
        for text in texts:
            place = 0
            while place + 1 < len(text):
                if text[place : place + 2] == [left, right]:
                    text[place : place + 2] = [token]
                place += 1
    return merges


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text("ab#", min_size=1, max_size=9), max_size=9),
    st.sampled_from(["", "#", "##", "a"]),
)
def test_tokens_that_arise_twice_stay_one_token(words: list[str], prefix: str) -> None:
    counts = words_of([" ".join(words)], SPACES)
    symbols = character_symbols(counts, Alphabet(prefix=prefix), ["#a", "##"])
    size = len(symbols) + 12
    merges = learn(counts, symbols, size)

    made = zip(merges.pairs.tolist(), merges.ids.tolist(), strict=True)
    assert [(*pair, token) for pair, token in made] == by_hand(counts, symbols, size)

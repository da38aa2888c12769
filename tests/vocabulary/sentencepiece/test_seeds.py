"""Seeds of a Unigram model, against their definition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.sentencepiece.seeds import find_seeds
from tokenmill.vocabulary.sentencepiece.trainer_options import SentencePieceOptions

OPTIONS = SentencePieceOptions(model="unigram", vocabulary_size=100, max_piece_characters=4)


def seeds_of(counts: dict[str, int], options: SentencePieceOptions = OPTIONS) -> dict[str, int]:
    words = WordCounts.of({word.encode(): count for word, count in counts.items()})
    found = find_seeds(words, options)
    return dict(zip(found.pieces, found.counts.tolist(), strict=True))


def by_definition(counts: dict[str, int]) -> dict[str, int]:
    longest = OPTIONS.max_piece_characters
    found: Counter[str] = Counter()
    for word, count in counts.items():
        for start in range(len(word)):
            for stop in range(start + 1, min(start + longest, len(word)) + 1):
                if "▁" not in word[start + 1 : stop]:
                    found[word[start:stop]] += count
    best = {
        part: max((found[part + c] for c in "ab▁" if len(part) < longest), default=0)
        for part in found
    }
    return {
        part: count for part, count in found.items() if len(part) > 1 and count > max(1, best[part])
    }


@given(st.dictionaries(st.text("ab▁", min_size=1, max_size=9), st.integers(1, 5), min_size=1))
def test_seeds_are_the_parts_that_go_on_in_different_ways(counts):
    assert seeds_of(counts) == by_definition(counts)


def test_no_more_than_five_a_piece_are_kept():
    few = replace(OPTIONS, vocabulary_size=1)
    found = seeds_of({"▁abcd": 7, "▁abc": 2})
    assert list(seeds_of({"▁abcd": 7, "▁abc": 2}, few)) == list(found)[:5] != list(found)


@given(st.dictionaries(st.text("ab▁", min_size=1, max_size=9), st.integers(1, 5), min_size=1))
def test_the_five_best_a_piece_are_kept(counts):
    few = replace(OPTIONS, vocabulary_size=1)
    assert list(seeds_of(counts, few).items()) == list(seeds_of(counts).items())[:5]


def test_no_seed_holds_two_scripts_or_two_digits_where_no_piece_may():
    mixed = {"▁abв,,12": 5}
    assert set(seeds_of(mixed)) == {"▁ab", "ab", ",,12", ",12", "12"}
    digits = replace(OPTIONS, split_digits=True)
    assert set(seeds_of(mixed, digits)) == {"▁ab", "ab", ",,"}


def test_a_combining_mark_has_the_script_of_its_letter():
    assert "е\u0301" in seeds_of({"▁е\u0301": 5})


def test_kana_and_han_are_one_script():
    assert set(seeds_of({"日のカー": 5})) == {"日のカー", "のカー", "カー"}


def test_rare_words_are_not_looked_at_where_there_are_too_many():
    words = WordCounts.of({b"abab": 5, b"cdcd": 5, b"efef": 9})
    found = find_seeds(words, OPTIONS, max_characters=8)
    assert (found.num_words, set("".join(found.pieces))) == (2, set("abef"))

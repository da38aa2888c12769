"""Unique words and their counts, against `collections.Counter`."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.encode.words import table as table_module
from tokenmill.encode.words.table import WordTable


def add(table, words, counts=None):
    data = np.frombuffer(b"".join(words), np.uint8)
    edges = np.cumsum([0, *map(len, words)], dtype=np.int64)
    table.add(data, edges, None if counts is None else np.array(counts, np.int64))


def taken(table):
    found = table.take()
    assert [found.word(i) for i in range(len(found))] == sorted(found.to_dict())
    return found.to_dict()


def test_words_may_come_with_counts():
    table = WordTable()
    add(table, [b"a", b"b", b"a"], [3, 1 << 40, 4])
    assert taken(table) == {b"a": 7, b"b": 1 << 40}


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(b"\x00\x00\x01a\xff"), min_size=1, max_size=20)))
def test_any_words_are_counted_as_by_counter(words):
    words = [bytes(word) for word in words]
    table = WordTable()
    add(table, words)
    assert taken(table) == Counter(words)


def test_words_of_400_000_bytes_are_words():
    words = [b"x" * 400_000, b"x" * 400_001, b"x" * 400_000 + b"\0", b"x" * 400_000]
    table = WordTable()
    add(table, words)
    assert taken(table) == Counter(words)


def test_the_table_grows_over_many_words(monkeypatch):
    monkeypatch.setattr(table_module, "WORDS_A_STEP", 1000)
    words = [str(number * number % 70_001).encode() for number in range(100_000)]
    table = WordTable()
    add(table, words)
    assert len(table) == len(set(words))
    assert taken(table) == Counter(words)


def test_equal_hashes_prove_nothing(monkeypatch):
    def same(data, edges, basis):
        return np.ones(len(edges) - 1, np.uint64)

    monkeypatch.setattr(table_module, "tags_of", same)
    table = WordTable()
    words = [b"a", b"ab", b"b", b"a", b"ba"]
    add(table, words)
    assert taken(table) == Counter(words)


def test_numbers_lead_back_to_words():
    table = WordTable()
    data, edges = np.frombuffer(b"abcab", np.uint8), np.array([0, 2, 3, 5])
    numbers = table.numbers(data, edges)
    assert numbers.tolist() == [0, 1, 0]
    words, ends = table.words(numbers)
    assert (words.tobytes(), ends.tolist()) == (b"abcab", [0, 2, 3, 5])

"""Tokens over words: against the offsets that the library gives."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from encode.trained_kit import NAMES, SENTENCES, trained
from tokenmill.core.records import TokenBatch
from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.measure.language_words import WordCutter
from tokenmill.encode.measure.measurer import (
    UNKNOWN_WORDS,
    continued_by_offsets,
    continued_words,
    token_table,
)
from tokenmill.encode.token_bytes import Token, tokens_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.kernels.word_boundaries import EncodedTexts, TokenTable

TEXTS = st.text(st.sampled_from("ab the  '1é字ก\n▁😀.\u0301"), max_size=16)


@functools.cache
def opened(name: str) -> tuple[Reference, TokenTable]:
    file = trained(name)
    reference = load_reference(file, control_tokens=False)
    tokens = tokens_of(file)
    assert tokens is not None
    return reference, token_table(tokens, reference.largest_id)


def by_offsets(reference: Reference, text: str, rule: str) -> int:
    encoded = EncodedTexts.of([text])
    spans = WordCutter(rule).cut(encoded).spans
    before = [len(encoded.data[:at].tobytes().decode()) for at in spans.ravel().tolist()]
    _, starts, stops = reference.encode_with_offsets(text)
    return continued_by_offsets(np.array(before, np.int64).reshape(-1, 2), starts, stops)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(texts=st.lists(TEXTS, max_size=3))
@example(texts=SENTENCES)
def test_bytes_of_tokens_cut_words_where_offsets_do(name: str, texts: list[str]) -> None:
    reference, table = opened(name)
    encoded = EncodedTexts.of(texts)
    words = WordCutter("whitespace").cut(encoded)
    found = continued_words(encoded, words, reference.encode(texts), table)
    for text, continued in zip(texts, found.tolist(), strict=True):
        if continued != UNKNOWN_WORDS:
            # The library counts the space that llama2 puts before a text as part of the first word.
            extra = by_offsets(reference, text, "whitespace") - continued
            assert extra == 0 or (name, extra) == ("llama2", 1)
        else:  # NFC changed it, or it holds the character that stands for a space
            assert (name, True) in (("neox", True), ("llama2", "▁" in text))


def test_a_word_is_taken_with_its_space_and_a_token_may_hold_several() -> None:
    texts = EncodedTexts.of(["go on, on and on"])
    words = WordCutter("whitespace").cut(texts)
    pieces = [b"g", b"o", b" on", b",", b" on and", b" on"]
    table = token_table({i: Token(data) for i, data in enumerate(pieces)}, 5)
    ids = TokenBatch(np.arange(6, dtype=np.uint32), np.array([0, 6]))
    assert continued_words(texts, words, ids, table).tolist() == [2]  # "go" and "on,"


def test_a_space_before_the_text_is_no_part_of_it() -> None:
    table = token_table({0: Token(b" "), 1: Token(b" on")}, 1)
    texts = EncodedTexts.of(["on", " on", "  on", "no"])
    words = WordCutter("whitespace").cut(texts)
    ids = np.array([1, 1, 0, 1, 1], np.uint32)
    tokens = TokenBatch(ids, np.array([0, 1, 2, 4, 5]))
    assert continued_words(texts, words, tokens, table).tolist() == [0, 0, 0, UNKNOWN_WORDS]
    twice = TokenBatch(np.array([0, 1], np.uint32), np.array([0, 2]))
    of_one = EncodedTexts.of([" on"])
    assert continued_words(of_one, WordCutter("whitespace").cut(of_one), twice, table) == [0]


def test_tokens_that_do_not_spell_their_text_are_laid_by_offsets() -> None:
    vocabulary = {"[UNK]": 0, "un": 1, "##aff": 2, "##able": 3, "dogs": 4}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    file = TokenizerFile("huggingface", tokenizer.to_str().encode())
    reference = load_reference(file, control_tokens=False)
    tokens = tokens_of(file)
    assert tokens is not None
    texts = EncodedTexts.of(["Unaffable dogs"])
    words = WordCutter("whitespace").cut(texts)
    table = token_table(tokens, reference.largest_id)
    encoded = reference.encode(["Unaffable dogs"])
    assert continued_words(texts, words, encoded, table).tolist() == [UNKNOWN_WORDS]
    assert by_offsets(reference, "Unaffable dogs", "whitespace") == 1

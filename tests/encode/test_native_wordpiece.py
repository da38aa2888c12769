"""native with WordPiece: the reference's ids for all of ASCII, and for what it leaves out."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import BERT_SPLIT, CACHE_BYTES, bert_normalizer
from tokenizer_kit import Json, added_token, as_file, byte_level_json, documents

from tokenmill.encode.engine import Engine
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.engines.native.loading import native_objection
from tokenmill.encode.kinds import load_reference

PIECES = ["un", "##aff", "##able", "##a", "##b", "a", "ab", "##", "#", "A", "B", ",", "x", "##x"]
TOKENS = ["[UNK]", *PIECES, "é", "##é", "中", "'", "éa", "éb", "##1", "12", "~", "the", "##e"]
ATOMS = [*map(chr, range(128)), *"éÉ中\u0301\u00a0ﬁß😀", "unaffable", "[UNK]", "x" * 9, "  "]


def word_piece(normalizer: Json | None = None, **changes: Any) -> Json:
    """BERT's steps around a small vocabulary."""
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 8,
        "vocab": {token: i for i, token in enumerate(TOKENS)},
    }
    made = byte_level_json(normalizer=normalizer or bert_normalizer(), pre_tokenizer=BERT_SPLIT)
    return {**made, "model": {**model, **changes}, "decoder": None, "added_tokens": []}


def engines(tokenizer: Json) -> tuple[Engine, Engine]:
    file = as_file(tokenizer)
    return load_engine("native", file, False, CACHE_BYTES), load_reference(file, False)


@functools.cache
def with_prefix(prefix: str) -> tuple[Engine, Engine]:
    """Loaded once for all examples."""
    return engines(word_piece(continuing_subword_prefix=prefix))


NORMALIZERS = [
    bert_normalizer(),
    bert_normalizer(lowercase=False),
    bert_normalizer(clean_text=False),
    bert_normalizer(handle_chinese_chars=False, strip_accents=True),
]


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_every_pair_of_ascii_characters(normalizer: Json) -> None:
    native, reference = engines(word_piece(normalizer))
    texts = [f"a{chr(one)}{chr(two)}b" for one in range(128) for two in range(128)]
    assert documents(native.encode(texts)) == documents(reference.encode(texts))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from(ATOMS), max_size=12).map("".join), max_size=6))
@pytest.mark.parametrize("prefix", ["##", "", "a", "é"])
def test_texts_of_any_characters(prefix: str, texts: list[str]) -> None:
    native, reference = with_prefix(prefix)
    for _ in range(2):
        assert documents(native.encode(texts)) == documents(reference.encode(texts))


def test_words_of_the_most_characters_and_of_one_more() -> None:
    native, _ = engines(word_piece())
    x, rest = TOKENS.index("x"), TOKENS.index("##x")
    assert documents(native.encode(["x" * 8, "x" * 9])) == [[x, *[rest] * 7], [0]]


def test_the_prefix_of_later_pieces_need_not_be_ascii() -> None:
    native, reference = with_prefix("é")
    assert documents(reference.encode(["aab"])) == [[TOKENS.index(t) for t in ("a", "éa", "éb")]]
    assert documents(native.encode(["aab"])) == documents(reference.encode(["aab"]))


def test_words_may_have_as_many_characters_as_a_file_can_say() -> None:
    native, reference = engines(word_piece(max_input_chars_per_word=(1 << 64) - 1))
    assert documents(native.encode(["x" * 9])) == documents(reference.encode(["x" * 9]))


def test_what_is_not_known_is_refused() -> None:
    assert native_objection(word_piece(), False) == ""
    assert native_objection(word_piece(unk_token="?"), False).startswith("a WordPiece model")
    assert "steps" in native_objection({**word_piece(), "normalizer": None}, False)
    added = {**word_piece(), "added_tokens": [added_token("[X]", 50, special=True)]}
    assert native_objection(added, False) == ""
    assert native_objection(added, True) == "added tokens that are looked for in texts"

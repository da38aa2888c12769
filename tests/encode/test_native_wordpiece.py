"""native with WordPiece and WordLevel: the reference's ids for any character, beside marks, too."""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import (
    BERT_SPLIT,
    CACHE_BYTES,
    LOWERCASE,
    NFC,
    WHITESPACE,
    WHITESPACE_SPLIT,
    bert_normalizer,
)
from tokenizer_kit import Json, added_token, as_file, byte_level_json, documents

from tokenmill.encode.engine import Engine
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.engines.native.gate import native_objection
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


def word_level(normalizer: Json | None, pre_tokenizer: Json, words: list[str]) -> Json:
    """Some words, and [UNK] for others."""
    vocab = {word: i for i, word in enumerate(dict.fromkeys(["[UNK]", *words]))}
    model = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": vocab}
    made = byte_level_json(normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    return {**made, "model": model, "decoder": None, "added_tokens": []}


def every_character() -> list[str]:
    """Those of the first two planes of Unicode, and a few beyond."""
    codes = itertools.chain(range(0xD800), range(0xE000, 0x20000), range(0x20000, 0x110000, 4099))
    return list(map(chr, codes))


def spelled(text: str, prefix: str = "") -> list[str]:
    """Its characters, as other scripts have them, to be tokens."""
    return [prefix + c for c in dict.fromkeys(text)]


@functools.cache
def with_prefix(prefix: str) -> tuple[Engine, Engine]:
    """Loaded once for all examples."""
    return engines(word_piece(continuing_subword_prefix=prefix))


NORMALIZERS = [
    bert_normalizer(),
    bert_normalizer(lowercase=False),
    pytest.param(bert_normalizer(clean_text=False), marks=pytest.mark.soak),
    pytest.param(
        bert_normalizer(handle_chinese_chars=False, strip_accents=True), marks=pytest.mark.soak
    ),
]


SAMPLE = (
    "".join(map(chr, range(0x20, 0x600))) + "ᄀᄁ가각힣ᆨ中文๐ุ้ทक्षि्\u3099か\U0001d538😀\u200d\ufe0f"
)
MARKS = "\u0301\u0323\u0e38\u094d\u3099\u302e\u05b0\u200d\ufe0f"
STEPS = [
    (LOWERCASE, WHITESPACE),
    (bert_normalizer(clean_text=False, lowercase=False), WHITESPACE_SPLIT),
    pytest.param((None, WHITESPACE_SPLIT), marks=pytest.mark.soak),
    pytest.param((None, BERT_SPLIT), marks=pytest.mark.soak),
    pytest.param((bert_normalizer(), WHITESPACE), marks=pytest.mark.soak),
]


def pieces_of_characters(normalizer: Json) -> Json:
    """A word piece for each of some characters, so that ids tell the normalized text."""
    lowered = SAMPLE + SAMPLE.lower()
    tokens = ["[UNK]", *spelled(lowered), *spelled(lowered, "##")]
    return word_piece(normalizer, vocab={token: i for i, token in enumerate(tokens)})


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_every_character_is_cut_and_normalized_as_by_the_reference(normalizer: Json) -> None:
    native, reference = engines(pieces_of_characters(normalizer))
    characters = every_character()
    texts = ["".join(f"a{c}1 " for c in characters[i : i + 64]) for i in range(0, 0x21000, 64)]
    texts += [" ".join(f"a{a}{b}b" for b in characters[:128]) for a in characters[:128]]
    texts += [f"a{a}{b}e\u0301" for a, b in itertools.product(SAMPLE[::7], MARKS)]
    texts += [f"o{a}{b}" for a, b in itertools.product(MARKS, repeat=2)]
    assert documents(native.encode(texts)) == documents(reference.encode(texts))


@pytest.mark.parametrize("steps", STEPS)
def test_every_character_beside_words(steps: tuple[Json | None, Json]) -> None:
    words = [*spelled(SAMPLE), *spelled(SAMPLE, "a"), *spelled(SAMPLE, "-"), "a", "-", "--"]
    native, reference = engines(word_level(*steps, words))
    characters = every_character()
    texts = ["".join(f"a{c} {c}- " for c in characters[i : i + 64]) for i in range(0, 0x21000, 64)]
    texts += [f"{a}{b}-a" for a, b in itertools.product(SAMPLE[::7], MARKS + "-!_ ")]
    assert documents(native.encode(texts)) == documents(reference.encode(texts))


def random_tokenizer(chance: random.Random) -> Json:
    """Any steps that are admitted, and some pieces of the texts."""
    flags = ("clean_text", "handle_chinese_chars", "lowercase", "strip_accents")
    bert = bert_normalizer(**{flag: chance.random() < 0.5 for flag in flags})
    parts = ["".join(chance.choices(SAMPLE, k=chance.randint(1, 3))) for _ in range(300)]
    parts += SAMPLE[::2]
    if chance.random() < 0.5:
        pre_tokenizer = chance.choice([WHITESPACE, WHITESPACE_SPLIT, BERT_SPLIT])
        return word_level(chance.choice([None, LOWERCASE, bert]), pre_tokenizer, parts)
    tokens = ["[UNK]", *parts, *(f"##{part}" for part in parts)]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return word_piece(bert, vocab=vocab, max_input_chars_per_word=chance.randint(1, 12))


def compare_random(seed: int) -> None:
    chance = random.Random(seed)
    native, reference = engines(random_tokenizer(chance))
    alphabet = SAMPLE + MARKS * 9 + " -.aé" * 20
    texts = ["".join(chance.choices(alphabet, k=chance.randint(0, 80))) for _ in range(300)]
    assert documents(native.encode(texts)) == documents(reference.encode(texts)), seed


def test_random_tokenizers() -> None:
    compare_random(0)
    compare_random(1)


@pytest.mark.soak
def test_many_random_tokenizers() -> None:
    for seed in range(1_000, 1_200):
        compare_random(seed)


any_texts = st.lists(st.lists(st.sampled_from(ATOMS), max_size=12).map("".join), max_size=6)
PREFIXES = ["##", "", "a", "é"]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(PREFIXES), any_texts)
def test_texts_of_any_characters(prefix: str, texts: list[str]) -> None:
    native, reference = with_prefix(prefix)
    for _ in range(2):  # the second time, chunks are found in the table
        assert documents(native.encode(texts)) == documents(reference.encode(texts))


def test_words_of_the_most_characters_and_of_one_more() -> None:
    native, _ = engines(word_piece())
    x, rest = TOKENS.index("x"), TOKENS.index("##x")
    assert documents(native.encode(["x" * 8, "x" * 9])) == [[x, *[rest] * 7], [0]]


def test_the_longest_word_is_counted_in_characters() -> None:
    native, reference = engines(word_piece(bert_normalizer(lowercase=False)))
    texts = ["é" * 8, "é" * 9, "中é" * 9]
    assert documents(native.encode(texts)) == documents(reference.encode(texts))
    assert documents(native.encode(texts[:2]))[1] == [0]


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
    assert native_objection(added, True) == "added tokens matched in texts"


def test_words_of_which_steps_are_not_known_are_refused() -> None:
    assert native_objection(word_level(LOWERCASE, WHITESPACE, ["a"]), False) == ""
    assert "normalizer" in native_objection(word_level(NFC, WHITESPACE, ["a"]), False)
    digits = {"type": "Digits", "individual_digits": True}
    assert "pre-tokenizer" in native_objection(word_level(None, digits, ["a"]), False)
    made = word_level(None, WHITESPACE, ["a"])
    made["model"]["unk_token"] = "?"
    assert native_objection(made, False) == "a WordLevel model without its unknown token"

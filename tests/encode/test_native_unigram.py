"""native against the reference with Unigram models: the same ids, and little that is left out."""

from __future__ import annotations

import functools
import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import (
    LOWERCASE,
    NFC,
    NFKC,
    NFKD,
    NMT,
    QUOTES,
    STRIP_ACCENTS,
    STRIP_RIGHT,
    WHITESPACE_SPLIT,
    XLM_R_STEPS,
    custom_charsmap,
    metaspace,
    normalizers,
    precompiled,
    replace_regex,
)
from test_memo import ATOMS
from tokenizer_kit import Json, added_token, as_file, documents, replace, sequence
from trained_kit import SENTENCES

from tokenmill.core.errors import EngineError
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.engine_ranking import load_native
from tokenmill.encode.engines.chunks import NativeEngine
from tokenmill.encode.engines.native.gate import native_objection
from tokenmill.encode.engines.native.unigram import read_score
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.kinds import load_reference
from tokenmill.kernels.double_array import double_array

JOINED = replace_regex(" {2,}", " ")
ONE_SPACE_AT_THE_END = replace_regex(r" \z", "")
PIPELINES = {
    "no normalizer": (None, metaspace()),
    "a ▁ before the text only": (None, metaspace("first")),
    "no ▁ before the text": (NMT, metaspace("never")),
    "NFKC": (normalizers(NFKC, JOINED), metaspace()),
    "NFC of lower case": (normalizers(LOWERCASE, NFC, JOINED, STRIP_RIGHT), metaspace()),
    "one space at the end": (normalizers(NMT, NFKC, JOINED, ONE_SPACE_AT_THE_END), metaspace()),
    "another apostrophe": (replace("’", "'"), metaspace()),
}
WITH_CHARSMAP = {
    "T5": (XLM_R_STEPS, metaspace()),
    "XLM-R": ((), sequence(WHITESPACE_SPLIT, metaspace())),
    "lower case": ((LOWERCASE, JOINED, ONE_SPACE_AT_THE_END), metaspace()),
}
ALBERT = (*QUOTES, NFKD, STRIP_ACCENTS, LOWERCASE)
XLNET = (*QUOTES, NFKD, STRIP_ACCENTS)
BEFORE_CHARSMAP = {
    "ALBERT": (ALBERT, (), sequence(WHITESPACE_SPLIT, metaspace())),
    "XLNet": (XLNET, (JOINED,), metaspace()),
}
NAMES = [*PIPELINES, *WITH_CHARSMAP, *BEFORE_CHARSMAP]


def unigram(
    normalizer: Json | None, pre_tokenizer: Json, fallback: bool = True, *added: Json
) -> Json:
    """Parts of sentences and all bytes, with scores that are alike or nearly so."""
    text = "▁" + "▁".join(SENTENCES).replace(" ", "▁")
    parts = {text[i : i + size] for i in range(len(text)) for size in (1, 1, 2, 3, 5)}
    drawn = random.Random(0)
    pieces = [["<unk>", 0.0], *([part, -drawn.randint(40, 90) / 8] for part in sorted(parts))]
    if fallback:
        pieces += [[f"<0x{byte:02X}>", -20.1234567890123456] for byte in range(256)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token("<unk>", 0, special=True), *added],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": fallback},
    }


def pipeline(name: str) -> tuple[Json | None, Json]:
    if name in PIPELINES:
        return PIPELINES[name]
    before = ()
    if name in WITH_CHARSMAP:
        steps, pre_tokenizer = WITH_CHARSMAP[name]
    else:
        before, steps, pre_tokenizer = BEFORE_CHARSMAP[name]
    return normalizers(*before, precompiled(), *steps), pre_tokenizer


def engines(tokenizer: Json, left_out_goes: Engine | None = None) -> tuple[NativeEngine, Reference]:
    assert native_objection(tokenizer, False) == ""
    reference = load_reference(as_file(tokenizer), False)
    behind = left_out_goes or reference
    native = load_native(msgspec.json.encode(tokenizer), False, lambda: behind, 1 << 30)
    return native, reference


@functools.cache
def engines_of(name: str) -> tuple[NativeEngine, Reference]:
    return engines(unigram(*pipeline(name), name != "no normalizer"))


@pytest.mark.parametrize("name", NAMES)
def test_texts_have_the_ids_of_the_reference(name: str) -> None:
    native, reference = engines_of(name)
    texts = [*SENTENCES, *ATOMS, " ".join(ATOMS), "".join(ATOMS), *adversarial_texts(["<unk>"])]
    compare_tokens("native", texts, native.encode(texts), reference.encode(texts))


OTHERS = ("NFC of lower case", "XLM-R", "lower case")
SOAKED = [pytest.param(name, marks=pytest.mark.soak) for name in OTHERS]


@pytest.mark.parametrize("name", ["NFKC", "T5", *SOAKED])
def test_every_character_in_context_has_the_ids_of_the_reference(name: str) -> None:
    native, reference = engines_of(name)
    planes = [c for c in range(0x20400) if not 0xD800 <= c < 0xE000]
    shown = [f"e{c}a {c}{c}\n" for c in map(chr, planes)]
    texts = ["".join(shown[start : start + 8]) for start in range(0, len(shown), 8)]
    compare_tokens("native", texts, native.encode(texts), reference.encode(texts))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.lists(st.sampled_from(ATOMS) | st.text(max_size=3))))
def test_any_text_has_the_ids_of_the_reference(name: str, parts: list[list[str]]) -> None:
    native, reference = engines_of(name)
    texts = ["".join(text) for text in parts]
    assert documents(native.encode(texts)) == documents(reference.encode(texts))


class _Nothing:
    """A reference that must not be asked."""

    name, version = "nothing", "0"

    def encode(self, texts: list[str]) -> None:
        raise AssertionError(texts)


@pytest.mark.parametrize("name", NAMES)
def test_sentences_in_many_scripts_are_not_left_out(name: str) -> None:
    native, reference = engines(unigram(*pipeline(name)), _Nothing())  # type: ignore[arg-type]
    texts = SENTENCES[:-1]
    compare_tokens("native", texts, native.encode(texts), reference.encode(texts))


def test_quotes_and_accents_of_albert() -> None:
    native, reference = engines_of("ALBERT")
    texts = ["``a''", "`a`'b'", "''''", "e\u0301'\u0301'", "Ü\r\u0301\n", "`\u1fef", "ä\u200d"]
    compare_tokens("native", texts, native.encode(texts), reference.encode(texts))


def test_a_dropped_first_character_takes_the_place_of_the_first_mark() -> None:
    native, reference = engines(unigram(NMT, metaspace("first")))
    texts = ["\x01ab", "\x01 ab", "ab", "a\x01b"]
    compare_tokens("native", texts, native.encode(texts), reference.encode(texts))


def test_a_mark_that_comes_before_the_one_in_the_last_character() -> None:
    native, reference = engines_of("NFKC")
    texts = ["\u00e9\u0327", "\u00c9\u0327", "\u1eaf\u0323", "\u01f4\u0316", "\u0958\u093c\u0301"]
    compare_tokens("native", texts, native.encode(texts), reference.encode(texts))


def test_a_table_of_ones_own_replaces_by_grapheme() -> None:
    table = custom_charsmap(("e\u0301", "E"), ("A", "b"), ("\r", "r"), ("x", "y y"), ("z", ""))
    tokenizer = unigram(normalizers(precompiled(table), JOINED), metaspace())
    native, reference = engines(tokenizer)
    texts = ["ae\u0301", "e\u0301\u0302", "A\u0301 A", "a\r\nb\rc", "x x", "z", "z a z", "A\ufe0f"]
    assert documents(native.encode(texts)) == documents(reference.encode(texts))


def test_an_unknown_token_in_a_text_is_one_with_unknown_characters_beside_it() -> None:
    for fallback in (False, True):
        native, reference = engines(unigram(None, metaspace(), fallback))
        texts = ["<unk>", "☃<unk>☃ <unk> ☃☃", "a<unk><unk>b"]
        assert documents(native.encode(texts)) == documents(reference.encode(texts))


REFUSED = {
    "no unknown token": (
        {"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0]]}},
        "a Unigram model without an unknown token",
    ),
    "an option of a later version": (
        {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]], "alpha": 0.1}},
        "a Unigram model with alpha",
    ),
    "NFD": ({"normalizer": {"type": "NFD"}}, "normalizer NFD"),
    "NFKC before others": (
        {"normalizer": normalizers(NFKC, LOWERCASE)},
        "the order of its normalizers",
    ),
    "NFKD without StripAccents": (
        {"normalizer": normalizers(NFKD, LOWERCASE)},
        "the order of its normalizers",
    ),
    "quotes after others": (
        {"normalizer": normalizers(NFKD, STRIP_ACCENTS, *QUOTES)},
        "the order of its normalizers",
    ),
    "Digits": (
        {"pre_tokenizer": sequence(metaspace(), {"type": "Digits", "individual_digits": True})},
        "a pre-tokenizer other than Metaspace",
    ),
    "an added token": (
        {"added_tokens": [added_token("<x>", 9)]},
        "added tokens matched in texts",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_exactly_is_not_taken(name: str) -> None:
    changes, objection = REFUSED[name]
    assert native_objection({**unigram(None, metaspace()), **changes}, False) == objection


DECIMALS = st.from_regex(r"-?[1-9][0-9]{0,4}\.[0-9]{1,25}", fullmatch=True)


@settings(deadline=None)
@given(st.lists(st.floats(-30, 30).map(repr) | DECIMALS, min_size=1))
def test_scores_are_read_as_the_library_reads_them(numbers: list[str]) -> None:
    from tokenizers import Tokenizer

    vocab = ",".join(f'["{i}", {number}]' for i, number in enumerate(numbers))
    model = f'{{"type": "Unigram", "unk_id": 0, "vocab": [{vocab}]}}'
    tokenizer = Tokenizer.from_str(f'{{"version": "1.0", "added_tokens": [], "model": {model}}}')
    read = json.loads(tokenizer.to_str())["model"]["vocab"]
    assert [read_score(number.encode()) for number in numbers] == [score for _, score in read]


@settings(deadline=None)  # the first example compiles
@given(st.dictionaries(st.text("aé▁中", min_size=1, max_size=6), st.integers(0, 99)))
def test_a_double_array_holds_what_it_is_given_and_nothing_else(words: dict[str, int]) -> None:
    nodes = double_array({word.encode(): i for word, i in words.items()})

    def found(key: bytes) -> int:
        node = 0
        for byte in key:
            node = int(nodes[node, 0]) >> 8 ^ byte
            if nodes[node, 0] & 0xFF != byte:
                return -1
        return int(nodes[node, 1])

    starts = {word.encode()[:stop] for word in words for stop in range(1, 20)}
    asked = {*starts, *(start + b"a" for start in starts)} - {b""}
    assert {key: found(key) for key in asked} == {
        key: {word.encode(): i for word, i in words.items()}.get(key, -1) for key in asked
    }


def test_a_double_array_takes_no_more_memory_than_it_may() -> None:
    with pytest.raises(EngineError, match="the vocabulary is too large for native"):
        double_array({b"a" * 1_000: 0, b"b": 1}, max_nodes=1 << 10)

"""What fastokens may not have: the S and R rows of the configuration matrix, one by one."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kit import (
    BYTE_LEVEL,
    BYTES_ONLY,
    Json,
    added_token,
    as_file,
    byte_level_json,
    documents,
    replace,
    sentencepiece_json,
    sequence,
    split,
)
from trained_kit import JSON_NAMES, trained_json

from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.engines.fastokens import EXACT_SPLITS, fastokens_objection, overlapping_tokens
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.tokenizer_json import loaded_ids
from tokenmill.encode.words.patterns import KNOWN_PATTERNS, LLAMA3_SPLIT

LLAMA3 = split(LLAMA3_SPLIT)
METASPACE: Json = {
    "type": "Metaspace",
    "replacement": "▁",
    "prepend_scheme": "always",
    "split": True,
}


def byte_level_without(*bytes_: int, unk: str | None = None) -> Json:
    tokenizer = byte_level_json(model={"unk_token": unk})
    vocab = tokenizer["model"]["vocab"]
    for symbol in [symbol for symbol, i in vocab.items() if i in bytes_]:
        del vocab[symbol]
    return tokenizer


def sentencepiece_without_byte_tokens() -> Json:
    tokenizer = sentencepiece_json()
    del tokenizer["model"]["vocab"]["<0x41>"]
    return tokenizer


def added(*tokens: Json) -> Json:
    return byte_level_json(added_tokens=list(tokens))


KNOWN_GOOD = {
    "ByteLevel": byte_level_json(),
    "ByteLevel with a prefix space": byte_level_json(
        pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True}
    ),
    "Llama 3's split": byte_level_json(pre_tokenizer=sequence(LLAMA3, BYTES_ONLY)),
    "a split Removed and inverted": byte_level_json(
        pre_tokenizer=sequence(split(LLAMA3_SPLIT, "Removed", True), BYTES_ONLY)
    ),
    "ignore_merges": byte_level_json(model={"ignore_merges": True}),
    "dropout of 0": byte_level_json(model={"dropout": 0.0}),
    "an added token after the vocabulary": added(added_token("<|x|>", 259, special=True)),
    "added tokens of one kind that overlap": added(
        added_token("zqxjj", 259), added_token("jjkkq", 260)
    ),
    "raw and normalized added tokens that never overlap": added(
        added_token("<a>", 259), added_token("[b]", 260, normalized=True)
    ),
    "added tokens that are not ASCII, without a normalizer": added(
        added_token("<｜end▁of▁sentence｜>", 259, special=True),
        added_token("éé", 260, normalized=True),
    ),
    "bytes missing that UTF-8 never has": byte_level_without(0xC0, 0xFF),
    "NFC": byte_level_json(normalizer={"type": "NFC"}),
    "Llama 2": sentencepiece_json(),
}


@pytest.mark.parametrize("name", KNOWN_GOOD)
def test_what_is_known_to_be_exact_is_admitted(name: str) -> None:
    assert fastokens_objection(KNOWN_GOOD[name]) == ""


REFUSED = {
    "no pre-tokenizer": (byte_level_json(pre_tokenizer=None), "pre-tokenizer none"),
    "Whitespace": (
        byte_level_json(pre_tokenizer={"type": "Whitespace"}),
        "pre-tokenizer Whitespace",
    ),
    "Metaspace without byte fallback": (
        byte_level_json(pre_tokenizer=METASPACE),
        "pre-tokenizer Metaspace",
    ),
    "ByteLevel without its regex": (
        byte_level_json(pre_tokenizer=BYTES_ONLY),
        "ByteLevel without its regex",
    ),
    "StarCoder's digits": (
        byte_level_json(
            pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, BYTE_LEVEL)
        ),
        "pre-tokenizer Digits + ByteLevel",
    ),
    "two splits": (
        byte_level_json(pre_tokenizer=sequence(split("x"), LLAMA3, BYTES_ONLY)),
        "a split pattern that it was not tested with",
    ),
    "a split without ByteLevel": (byte_level_json(pre_tokenizer=LLAMA3), "pre-tokenizer Split"),
    "a split that removes": (
        byte_level_json(pre_tokenizer=sequence(split(LLAMA3_SPLIT, "Removed"), BYTES_ONLY)),
        "split behaviour Removed",
    ),
    "an unknown regex": (
        byte_level_json(pre_tokenizer=sequence(split(r"\w+|\s"), BYTES_ONLY)),
        "a split pattern that it was not tested with",
    ),
    "ByteLevel with a second split or a prefix space": (
        byte_level_json(pre_tokenizer=sequence(LLAMA3, BYTE_LEVEL)),
        "ByteLevel with a second split or a prefix space",
    ),
    "dropout": (byte_level_json(model={"dropout": 0.1}), "dropout"),
    "a word suffix": (byte_level_json(model={"end_of_word_suffix": "</w>"}), "a word suffix"),
    "a subword prefix": (
        byte_level_json(model={"continuing_subword_prefix": "##"}),
        "a subword prefix",
    ),
    "duplicate merges": (
        byte_level_json(model={"merges": [["b", "c"], ["Ġ", "a"], ["b", "c"]]}),
        "duplicate merges",
    ),
    "a single_word added token": (
        added(added_token("jzqxj", 259, single_word=True)),
        "a single_word added token",
    ),
    "an added token of white space that strips white space": (
        added(added_token("\n", 259, lstrip=True, rstrip=True)),
        "an added token of white space that strips white space",
    ),
    "a non-ASCII added token together with a normalizer": (
        byte_level_json(
            added_tokens=[added_token("é", 259, normalized=True)], normalizer={"type": "NFC"}
        ),
        "a non-ASCII added token together with a normalizer",
    ),
    "an added token after a gap": (
        added(added_token("<|x|>", 300)),
        "an added token with an id that the library ignores",
    ),
    "added tokens out of order": (
        added(added_token("<|x|>", 260), added_token("<|y|>", 259)),
        "an added token with an id that the library ignores",
    ),
    "a raw token that overlaps a normalized one, and a special one that is normalized": (
        added(
            added_token("zqxjj", 259),
            added_token("jjkkq", 260, normalized=True),
            added_token("<s>", 261, normalized=True, special=True),
        ),
        "added tokens that overlap",
    ),
    "bytes missing from a byte-level vocabulary": (
        byte_level_without(0x41),
        "bytes that are missing from the vocabulary",
    ),
    "byte tokens missing": (
        sentencepiece_without_byte_tokens(),
        "bytes that are missing from the vocabulary",
    ),
    "byte fallback switched off": (
        sentencepiece_json(model={"byte_fallback": False}),
        "bytes that are missing from the vocabulary",
    ),
    "WordPiece": (
        byte_level_json(model={"type": "WordPiece", "continuing_subword_prefix": "##"}),
        "model WordPiece",
    ),
    "WordLevel": (byte_level_json(model={"type": "WordLevel"}), "model WordLevel"),
    "Unigram, whose vocabulary is a list": (
        byte_level_json(
            model={"type": "Unigram", "vocab": [["<unk>", 0.0]], "unk_id": 0},
            added_tokens=[added_token("<unk>", 0, special=True)],
        ),
        "model Unigram",
    ),
    "NFKC beside byte fallback": (
        sentencepiece_json(normalizer={"type": "NFKC"}),
        "normalizer NFKC",
    ),
    "a regex in a normalizer": (
        sentencepiece_json(normalizer={**replace(" ", "▁"), "pattern": {"Regex": " {2,}"}}),
        "a normalizer with a regex",
    ),
    "Metaspace beside byte fallback": (
        sentencepiece_json(pre_tokenizer=METASPACE),
        "a pre-tokenizer",
    ),
    "Gemma's split": (
        sentencepiece_json(
            pre_tokenizer={
                "type": "Split",
                "pattern": {"String": " "},
                "behavior": "MergedWithPrevious",
                "invert": False,
            }
        ),
        "a pre-tokenizer",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_fastokens_encodes_wrongly_or_refuses_is_not_given_to_it(name: str) -> None:
    tokenizer, reason = REFUSED[name]
    assert fastokens_objection(tokenizer) == reason


@pytest.mark.parametrize(
    "kind",
    ["Lowercase", "NFD", "NFKC", "NFKD", "StripAccents", "Nmt", "Strip", "ByteLevel"],
)
def test_a_byte_level_normalizer_other_than_nfc_is_refused(kind: str) -> None:
    tokenizer = byte_level_json(normalizer={"type": kind})
    assert fastokens_objection(tokenizer) == f"normalizer {kind}"


def test_a_sentencepiece_token_must_be_spelled_with_tokens() -> None:
    vocab = sentencepiece_json()["model"]["vocab"]
    tokenizer = sentencepiece_json(model={"vocab": vocab | {"ax": 287, "ay": 288}})
    assert fastokens_objection(tokenizer) == "a token with a character outside the vocabulary"


@pytest.mark.parametrize("name", JSON_NAMES)
def test_pipelines_of_published_tokenizers_are_admitted(name: str) -> None:
    assert fastokens_objection(trained_json(name)) == ""


def test_fastokens_is_given_only_patterns_that_are_known_to_end() -> None:
    given = {pattern for patterns in EXACT_SPLITS for pattern in patterns}
    assert given <= KNOWN_PATTERNS


contents = st.sampled_from(["a", "b", "abc", "bc", "<x>", "<y>", "<z>", "<w>"])


@settings(deadline=None)
@given(st.lists(st.tuples(contents, st.integers(0, 264)), max_size=6), st.integers(0, 9))
def test_the_gate_numbers_added_tokens_as_the_reference_does(
    pairs: list[tuple[str, int]], gap: int
) -> None:
    tokens = [added_token(content, i) for content, i in pairs]
    tokenizer = byte_level_json(added_tokens=tokens)
    vocab = tokenizer["model"]["vocab"]
    vocab["<x>"] = len(vocab) + gap
    loaded = tokenizers.Tokenizer.from_str(as_file(tokenizer).data.decode())
    expected = [loaded.token_to_id(token["content"]) for token in tokens]
    assert loaded_ids(tokenizer["model"]["vocab"], tokens) == expected


OVERLAPS = {
    "a raw token that ends in the start of a normalized one": (
        [added_token("zqxjj", 259), added_token("jjkkq", 260, normalized=True)],
        ["zqxjj"],
    ),
    "a normalized token that ends in the start of a raw one": (
        [added_token("zqxjj", 259, normalized=True), added_token("jjkkq", 260)],
        ["jjkkq"],
    ),
    "a raw token inside a normalized one": (
        [added_token("qxj", 259), added_token("zqxjj", 260, normalized=True)],
        ["qxj"],
    ),
    "a normalized token inside a raw one": (
        [added_token("zqxjj", 259), added_token("qxj", 260, normalized=True)],
        ["zqxjj"],
    ),
    "a raw token that strips the spaces of a normalized one": (
        [added_token("[M]", 259, lstrip=True), added_token("  ", 260, normalized=True)],
        ["[M]"],
    ),
    "DeepSeek": (
        [added_token("<｜/table>｜", 259), added_token("｜DSML｜", 260, normalized=True)],
        ["<｜/table>｜"],
    ),
    "tokens that are side by side": (
        [added_token("<a>", 259), added_token("[b]", 260, normalized=True)],
        [],
    ),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_raw_tokens_that_overlap_normalized_ones_are_named(name: str) -> None:
    tokens, expected = OVERLAPS[name]
    assert overlapping_tokens(tokens) == expected
    assert fastokens_objection(added(*tokens)) == ""


@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.parametrize("control", [False, True])
def test_texts_with_overlapping_tokens_are_those_of_the_reference(name: str, control: bool) -> None:
    pytest.importorskip("fastokens")
    first, second = tokens = OVERLAPS[name][0]
    file = as_file(added(*tokens))
    engine, reference = (
        load_engine("fastokens", file, control, 1 << 20),
        load_reference(file, control),
    )
    ab, ba = first["content"] + second["content"], second["content"] + first["content"]
    texts = [ab, ba, "zqxjjkkq", "a   [M]  b", "<｜/table>｜DSML｜", f"{ab[:-1]} {ba[1:]}"]
    assert documents(engine.encode(texts)) == documents(reference.encode(texts))

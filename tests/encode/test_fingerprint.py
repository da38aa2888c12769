"""A fingerprint is equal where the ids of texts are, however a file is spelled, and only there."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_kit import (
    added_token,
    as_file,
    byte_level_json,
    replace,
    sentencepiece_model,
    sequence,
    split,
)
from trained_kit import JSON_NAMES, trained

from tokenmill.core.errors import UserError
from tokenmill.encode.fingerprint import canonical_json, fingerprint_of
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file

Json = dict[str, Any]

quick = settings(max_examples=50, deadline=None)
words = st.text(max_size=5)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
)


@given(st.one_of(values, st.dictionaries(words, st.integers()), st.lists(st.lists(words))))
@example([["a", "b"], ["\u0120", "\U0001f600"]])
@example({"b": 1, "\u0120": 0, '"\\\n': 2})
@example({"a": True})
@quick
def test_a_value_is_spelled_as_by_the_standard_library(value: object) -> None:
    assert canonical_json(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))


MODELS: dict[str, Json] = {
    "WordPiece": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "a": 1, "##b": 2},
    },
    "WordLevel": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "a": 1}},
    "Unigram": {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [["<unk>", 0], ["a", -1.5], ["ab", -3.14159265358979]],
        "byte_fallback": False,
    },
}
STEPS: dict[str, list[Json]] = {
    "pre_tokenizer": [
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True},
        {"type": "Digits", "individual_digits": True},
        {"type": "Punctuation", "behavior": "Isolated"},
        {"type": "FixedLength", "length": 5},
        {"type": "CharDelimiterSplit", "delimiter": "x"},
        {"type": "Whitespace"},
        split("a+"),
    ],
    "normalizer": [
        {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        {"type": "Strip", "strip_left": True, "strip_right": False},
        {"type": "Prepend", "prepend": "x"},
        {"type": "NFC"},
        replace("a", "b"),
    ],
}


def digests(tokenizer: Json) -> dict[str, str]:
    return fingerprint_of(as_file(tokenizer)).digests


def value(tokenizer: Json | bytes | str) -> str:
    if isinstance(tokenizer, dict):
        return fingerprint_of(as_file(tokenizer)).value
    data = tokenizer.encode() if isinstance(tokenizer, str) else tokenizer
    return fingerprint_of(TokenizerFile("huggingface", data)).value


def resaved(tokenizer: Json) -> Json:
    """As the library writes what it has loaded."""
    return json.loads(tokenizers.Tokenizer.from_str(json.dumps(tokenizer)).to_str())


def without(tokenizer: Json, *keys: str) -> Json:
    return {key: value for key, value in tokenizer.items() if key not in keys}


def test_the_definition_is_the_one_that_datasets_hold() -> None:
    """If this changes, so must the version in front, and stored fingerprints become others."""
    tokenizer = byte_level_json(added_tokens=[added_token("<|end|>", 259, special=True)])
    expected = "tm1:0e1b32443b3b78b1259dad0ee3c3a01df23e7bba72affc9b4c5f92ae25465cda"
    assert value(tokenizer) == expected
    unigram = byte_level_json() | {"model": MODELS["Unigram"]}
    expected = "tm1:5d5f1e52169a44a0d9707c79248289940ac2a487390f34ff0bfecd16aec45494"
    assert value(unigram) == expected


def with_model(**changes: Any) -> Callable[[Json], Json]:
    return lambda tokenizer: tokenizer | {"model": tokenizer["model"] | changes}


SPELLINGS: dict[str, Callable[[Json], Json]] = {
    "merges as text": with_model(merges=["Ġ a", "b c", "a bc"]),
    "a line of a merges file": with_model(merges=["#version: 0.2", "Ġ a", "b c", "a bc"]),
    "a merge twice, of which the last counts": with_model(
        merges=[["b", "c"], ["Ġ", "a"], ["b", "c"], ["a", "bc"]]
    ),
    "affixes that are empty": with_model(continuing_subword_prefix="", end_of_word_suffix=""),
    "a dropout of 0": with_model(dropout=0.0),
    "defaults left out": lambda t: (
        t | {"model": {key: t["model"][key] for key in ("vocab", "merges")}}
    ),
    "a sequence of one": lambda t: t | {"pre_tokenizer": sequence(t["pre_tokenizer"])},
    "a sequence of none": lambda t: t | {"normalizer": {"type": "Sequence", "normalizers": []}},
    "keys in another order": lambda t: json.loads(json.dumps(t, sort_keys=True)),
    "no key where nothing is": lambda t: without(t, "normalizer", "truncation", "padding"),
    "offsets trimmed otherwise": lambda t: (
        t | {"pre_tokenizer": t["pre_tokenizer"] | {"trim_offsets": False}}
    ),
    "an added token's id as it is loaded": lambda t: (
        t | {"added_tokens": [t["added_tokens"][0], t["added_tokens"][1] | {"id": 4711}]}
    ),
    "another decoder": lambda t: t | {"decoder": None},
    "another post-processor": lambda t: t | {"post_processor": t["decoder"]},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_files_that_load_alike_have_one_fingerprint(spelling: str) -> None:
    tokens = [added_token("bc", 257), added_token("<|end|>", 259, special=True)]
    tokenizer = byte_level_json(added_tokens=tokens)
    other = SPELLINGS[spelling](tokenizer)
    assert other != tokenizer or spelling.endswith("order")
    assert value(other) == value(tokenizer) == value(resaved(other))


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_survives_the_library(kind: str) -> None:
    tokenizer = byte_level_json(model={}) | {"model": MODELS[kind], "pre_tokenizer": None}
    assert value(resaved(tokenizer)) == value(tokenizer)
    assert value(tokenizer | {"model": without(MODELS[kind], "type")}) == value(tokenizer)


def test_scores_survive_a_library_that_reads_their_last_digit_otherwise() -> None:
    scores = random.Random(7)
    vocab = [[str(number), -20 * scores.random()] for number in range(1000)]
    model = MODELS["Unigram"] | {"vocab": vocab}
    tokenizer = byte_level_json() | {"model": model, "pre_tokenizer": None}
    assert resaved(tokenizer)["model"]["vocab"] != vocab
    assert value(resaved(tokenizer)) == value(tokenizer)


def test_scores_that_no_float32_tells_apart_have_one_fingerprint_and_may_give_other_ids() -> None:
    """The exception that docs/explanation/tokenizer-identity.md names."""
    pieces = [["<unk>", 0.0], ["a", -1.0], ["b", -1.0], ["ab", -2.0]]
    exact = byte_level_json() | {"pre_tokenizer": None, "model": MODELS["Unigram"]}
    exact["model"] = MODELS["Unigram"] | {"vocab": pieces}
    close = exact | {"model": exact["model"] | {"vocab": [*pieces[:3], ["ab", -2.0000000001]]}}
    ids = [
        tokenizers.Tokenizer.from_str(json.dumps(made)).encode("ab").ids for made in (exact, close)
    ]
    assert ids == [[3], [1, 2]]
    assert value(exact) == value(close)


@pytest.mark.parametrize(
    ("component", "step"),
    [(component, step) for component, steps in STEPS.items() for step in steps],
    ids=lambda part: part["type"] if isinstance(part, dict) else part,
)
def test_a_missing_key_means_what_the_library_takes_it_for(component: str, step: Json) -> None:
    whole = byte_level_json(**{component: step})
    assert value(resaved(whole)) == value(whole)
    for key in without(step, "type"):
        tokenizer = byte_level_json(**{component: without(step, key)})
        try:
            expected = value(resaved(tokenizer))
        except Exception:  # the library's bare Exception: it wants this key
            continue
        assert value(tokenizer) == expected == value(whole)


def test_an_old_metaspace_is_the_new_one() -> None:
    new = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    old = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "str_rep": "▁"}
    tokenizer = byte_level_json(pre_tokenizer=old)
    assert value(tokenizer) == value(byte_level_json(pre_tokenizer=new))
    assert value(tokenizer) == value(resaved(tokenizer))


def saved_by_transformers(tokenizer: tokenizers.Tokenizer, folder: Path) -> tuple[str, str]:
    """Fingerprints of the file that is written, and of what is loaded from it."""
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    fast.save_pretrained(folder)
    again = transformers.AutoTokenizer.from_pretrained(folder)
    written = fingerprint_of(load_tokenizer_file(str(folder))).value
    return written, fingerprint_of(load_tokenizer_file(again)).value


@pytest.mark.parametrize("name", JSON_NAMES)
def test_pipelines_of_published_tokenizers_keep_their_fingerprint(
    name: str, tmp_path: Path
) -> None:
    expected = value(trained(name).data)
    tokenizer = tokenizers.Tokenizer.from_str(trained(name).data.decode())
    assert value(tokenizer.to_str()) == expected
    assert saved_by_transformers(tokenizer, tmp_path) == (expected, expected)


BASE = byte_level_json(
    added_tokens=[added_token("<|end|>", 259, special=True), added_token("bc", 257)],
    normalizer={"type": "NFC"},
)


@quick
@given(st.sampled_from(["unk_token", "continuing_subword_prefix", "end_of_word_suffix"]), st.text())
def test_a_string_of_the_model_changes_the_model_only(name: str, text: str) -> None:
    expected = {"model"} if text or name == "unk_token" else set()
    assert changed(BASE | {"model": BASE["model"] | {name: text}}) == expected


@quick
@given(st.sampled_from(STEPS["normalizer"]), st.sampled_from(STEPS["pre_tokenizer"]))
def test_a_step_changes_its_component_only(normalizer: Json, pre_tokenizer: Json) -> None:
    expected = set() if normalizer == BASE["normalizer"] else {"normalizer"}
    assert changed(BASE | {"normalizer": normalizer}) == expected
    tokenizer = BASE | {"pre_tokenizer": sequence(BASE["pre_tokenizer"], pre_tokenizer)}
    assert changed(tokenizer) == {"pre_tokenizer"}


def changed(tokenizer: Json, before: Json = BASE) -> set[str]:
    """Names of the components whose digests differ; the fingerprint must differ if any does."""
    ours, theirs = digests(before), digests(tokenizer)
    assert ours.keys() == theirs.keys()
    found = {name for name in ours if ours[name] != theirs[name]}
    assert (value(tokenizer) == value(before)) == (not found)
    return found


def test_a_rank_file_is_known_with_what_its_encoding_stands_for() -> None:
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab"]
    lines = (b"%b %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    data = b"".join(lines)
    base = TokenizerFile("tiktoken", data, "cl100k_base")
    moved = TokenizerFile("tiktoken", data.replace(b"Yg== 98", b"Yg== 300"), "cl100k_base")
    other = TokenizerFile("tiktoken", data, "p50k_base")
    found = [fingerprint_of(file) for file in (base, moved, other)]
    vocabulary = found[0].components["vocabulary"]
    assert (vocabulary["a"], vocabulary["b"], vocabulary["ab"]) == (97, 98, 256)
    assert found[0].components["pre_tokenizer"][0]["pattern"]["Regex"] == (
        ENCODINGS["cl100k_base"].pattern
    )
    assert different(found[0].digests, found[1].digests) == {"vocabulary"}
    assert different(found[0].digests, found[2].digests) == {"pre_tokenizer", "added_tokens"}
    blank_lines = TokenizerFile("tiktoken", data.replace(b"\n", b"\n\n"), "cl100k_base")
    assert fingerprint_of(blank_lines).value == found[0].value


def test_a_sentencepiece_model_is_its_bytes_and_its_pieces_can_be_seen() -> None:
    found = fingerprint_of(TokenizerFile("sentencepiece", sentencepiece_model()))
    unigram = fingerprint_of(TokenizerFile("sentencepiece", sentencepiece_model("unigram")))
    assert found.components["vocabulary"][0] == ["<unk>", 0.0]
    assert found.components["added_tokens"]["<s>"] == {"id": 1, "kind": "control"}
    assert different(found.digests, unigram.digests) == {"model", "vocabulary"}


def test_a_python_tokenizer_is_its_description_without_the_version_of_its_library() -> None:
    class Letters:
        vocab_size = 1 << 20

        def encode(self, text: str) -> list[int]:
            return [ord(letter) % (1 << 20) for letter in text]

    class Numbers(Letters):
        def encode(self, text: str) -> list[int]:
            return [1] * len(text)

    letters, again, numbers = (load_tokenizer_file(kind()) for kind in (Letters, Letters, Numbers))
    newer = TokenizerFile("python", letters.data.replace(b'version": ""', b'version": "2"'))
    assert newer.data != letters.data
    assert fingerprint_of(letters).value == fingerprint_of(again).value
    assert fingerprint_of(letters).value == fingerprint_of(newer).value
    found = different(fingerprint_of(letters).digests, fingerprint_of(numbers).digests)
    assert found == {"model", "answers"}


def different(ours: dict[str, str], theirs: dict[str, str]) -> set[str]:
    return {name for name in ours if ours[name] != theirs[name]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model": 1}',
        b'{"model": {"vocab": 1}, "added_tokens": [{}]}',
        b'{"model": {"type": "Unigram", "vocab": [1]}}',
        b'{"model": {"type": "Unigram", "vocab": [["a", 1' + b"0" * 400 + b"]]}}",
        b'{"model": {"vocab": {}, "merges": [1]}}',
        b'{"model": {"vocab": {}}, "normalizer": []}',
        b'{"model": ' * 2000,
    ],
)
def test_what_is_no_tokenizer_is_refused(data: bytes) -> None:
    with pytest.raises(UserError, match="cannot read the tokenizer"):
        fingerprint_of(TokenizerFile("huggingface", data))

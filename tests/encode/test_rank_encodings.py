"""Rank files: known by their ranks, or read as the user says."""

from __future__ import annotations

import itertools
import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import documents

from tokenmill.core.errors import UserError
from tokenmill.encode.encodings import (
    RankEncoding,
    chosen_encoding,
    encodings_of_ranks,
    parse_ranks,
    spelled_ranks,
)
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.probe import unknown_step
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.references.tiktoken import composed_with_places
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file

pytest.importorskip("tiktoken")

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "tokenizers"
END = "<|endoftext|>"
PIECES = [*(bytes([byte]) for byte in range(256)), b"ab", b" a", "é".encode()]
RANKS = spelled_ranks({piece: i for i, piece in enumerate(PIECES)})
GPT2 = ENCODINGS["gpt2"].pattern


def of_published(name: str) -> bytes:
    path = PUBLISHED / name
    if not path.is_file():
        pytest.skip("shared/data/tokenizers is not beside the repository")
    return path.read_bytes()


def written(folder: Path, name: str, data: bytes = RANKS) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_openais_encodings_are_those_of_its_own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiktoken_ext import openai_public

    def digest(_: str, expected_hash: str) -> str:
        return expected_hash

    gpt2 = ENCODINGS["gpt2"].ranks_sha256  # published as vocab.bpe and encoder.json
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", digest)
    monkeypatch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda **_: gpt2)
    for name, make in openai_public.ENCODING_CONSTRUCTORS.items():
        theirs, ours = make(), ENCODINGS[name]
        assert ours.pattern == theirs["pat_str"]
        assert ours.special_tokens == theirs["special_tokens"]
        assert ours.ranks_sha256 == theirs["mergeable_ranks"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama4", {"<|end_of_text|>": 200_001, "<|eot|>": 200_008, "<|patch|>": 200_092}),
        ("qwen", {END: 151_643, "<|im_start|>": 151_644, "<|extra_204|>": 151_850}),
        ("whisper", {END: 50_257, "<|su|>": 50_357, "<|0.00|>": 50_364, "<|30.00|>": 51_864}),
        ("whisper_v3", {END: 50_257, "<|yue|>": 50_358, "<|0.00|>": 50_365, "<|30.00|>": 51_865}),
        ("whisper_english", {END: 50_256, "<|en|>": 50_258, "<|30.00|>": 51_863}),
    ],
)
def test_special_tokens_have_their_published_ids(name: str, expected: dict[str, int]) -> None:
    specials = ENCODINGS[name].special_tokens
    assert {content: specials[content] for content in expected} == expected
    ids = list(specials.values())
    assert ids == list(range(ENCODINGS[name].num_ranks, max(ids) + 1))


def test_the_same_ranks_can_be_of_several_encodings(tmp_path: Path) -> None:
    data = of_published("gpt2.tiktoken")
    assert encodings_of_ranks(data) == ["gpt2", "r50k_base", "whisper_english"]
    assert load_tokenizer_file(written(tmp_path, "r50k_base.tiktoken", data)).encoding == (
        "r50k_base"
    )
    path = written(tmp_path, "any.tiktoken", data)
    assert load_tokenizer_file(path).encoding == "gpt2"
    assert load_tokenizer_file(path, "whisper_english").encoding == "whisper_english"


def test_ranks_are_known_in_any_order_and_with_any_line_ends() -> None:
    lines = of_published("gpt2.tiktoken").splitlines()
    assert encodings_of_ranks(b"\r\n".join(reversed(lines)))[0] == "gpt2"


def test_other_ranks_under_a_known_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = replace(ENCODINGS["qwen"], num_ranks=len(PIECES), ranks_sha256="0" * 64)
    monkeypatch.setitem(ENCODINGS, "qwen", known)
    for path, encoding in ((written(tmp_path, "qwen.tiktoken"), ""), (tmp_path, "qwen")):
        with pytest.raises(UserError) as caught:
            load_tokenizer_file(path, encoding)
        assert caught.value.what == "the rank file is not qwen"
        assert caught.value.why == "it has as many ranks as qwen, but different ones"
        assert caught.value.hint == "add --pattern and --specials-from"


def test_an_equals_sign_is_the_token_of_no_bytes() -> None:
    assert parse_ranks(RANKS + b"= 300\n")[b""] == 300
    file = TokenizerFile("tiktoken", RANKS + b"= 300\n", "whisper")
    assert documents(load_reference(file, False).encode(["ab", ""])) == [[256], []]


def qwen() -> TokenizerFile:
    return TokenizerFile("tiktoken", RANKS, "qwen", origin="qwen.tiktoken")


def test_qwen_encodes_texts_in_their_composed_form() -> None:
    reference = load_reference(qwen(), False)
    assert documents(reference.encode(["é", "e\u0301"])) == [[258], [258]]
    ids, starts, stops = reference.encode_with_offsets("ae\u0301 a")
    assert list(zip(ids.tolist(), starts.tolist(), stops.tolist(), strict=True)) == [
        (ord("a"), 0, 1),
        (258, 1, 3),
        (257, 3, 5),
    ]


def test_fastokens_gives_qwens_ids() -> None:
    pytest.importorskip("fastokens")
    texts = ["é", "e\u0301", "ab ab 2024", "\u1100\u1161\u11a8", "a\u0345\u1df8"]
    engine = load_engine("fastokens", qwen(), False, 1 << 20)
    assert documents(engine.encode(texts)) == documents(load_reference(qwen(), False).encode(texts))


MARKS = "ae\u0301\u0323\u0345é가\u1100\u1161\u11a8\u0f73\u0958\u1e9b\u2126 "


@given(st.text(alphabet=MARKS, max_size=12) | st.text(max_size=12))
def test_every_composed_character_says_what_it_is_made_of(text: str) -> None:
    found, starts, stops = composed_with_places(text)
    assert found == unicodedata.normalize("NFC", text)
    assert len(starts) == len(stops) == len(found)
    edges = sorted({0, len(text), *starts.tolist(), *stops.tolist()})
    assert np.all(starts < stops)
    assert np.all(np.diff(starts) >= 0)
    parts = itertools.pairwise(edges)
    assert "".join(unicodedata.normalize("NFC", text[a:b]) for a, b in parts) == found


def explicit(pattern: str = GPT2, **specials: int) -> RankEncoding:
    return RankEncoding(pattern, {f"<|{name}|>": i for name, i in specials.items()})


def test_a_rank_file_takes_the_pattern_and_the_tokens_that_are_given(tmp_path: Path) -> None:
    path = written(tmp_path, "own.tiktoken")
    file = load_tokenizer_file(path, explicit(r"\s|\S", endoftext=300))
    reference = load_reference(file, False)
    assert documents(reference.encode(["ab a"])) == [[97, 98, 32, 97]]
    assert (reference.special_tokens, reference.largest_id) == ({END: 300}, 300)


def test_with_a_known_pattern_it_is_the_known_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = replace(ENCODINGS["gpt2"], special_tokens={END: 300})
    monkeypatch.setitem(ENCODINGS, "gpt2", known)
    file = load_tokenizer_file(written(tmp_path, "own.tiktoken"), explicit(endoftext=300))
    named = TokenizerFile("tiktoken", RANKS, "gpt2")
    assert fingerprint_of(file).value == fingerprint_of(named).value
    assert file.sha256 != named.sha256
    assert unknown_step(file) == ""


@pytest.mark.parametrize(
    ("encoding", "what", "why"),
    [
        (explicit("(", end=300), "cannot load the tokenizer", "(?i)(paren|parse)"),
        (explicit("", end=300), "cannot use the split pattern", "0 characters"),
        (
            explicit(r"\S+"),
            "the split pattern does not match every character of a text",
            "of .* bytes",
        ),
        (explicit(a=7), "cannot load the tokenizer", "has the id of b'.x07'"),
        (RankEncoding(GPT2, {"a": 300, "b": 300}), "cannot load the tokenizer", "the id of 'a'"),
        (RankEncoding(GPT2, {"": 300}), "cannot load the tokenizer", "a special token is empty"),
        (explicit(a=-1), "cannot load the tokenizer", "is -1;"),
        (
            explicit("x*"),
            "the split pattern fails on a text, perhaps on an empty match",
            "range end",
        ),
        (explicit("\udcff"), "cannot use the split pattern", "it is not valid UTF-8"),
    ],
)
def test_what_cannot_be_the_encoding_of_a_rank_file_is_refused(
    tmp_path: Path, encoding: RankEncoding, what: str, why: str
) -> None:
    path = written(tmp_path, "own.tiktoken")
    with pytest.raises(UserError, match=why) as caught:
        load_reference(load_tokenizer_file(path, encoding), False)
    assert (caught.value.what, caught.value.where) == (what, str(path))


def test_a_text_of_which_a_pattern_leaves_something_out_is_refused(tmp_path: Path) -> None:
    pattern = r"[^\u00df]"
    file = load_tokenizer_file(written(tmp_path, "own.tiktoken"), explicit(pattern))
    reference = load_reference(file, False)
    assert len(reference.encode(["fine"]).ids) == 4
    with pytest.raises(Exception, match="its tokens cover 5 of 7 bytes"):
        reference.encode(["fine", "Stra\u00dfe"])


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"specials_from": "x.json"}, "--specials-from also needs --pattern"),
        ({"encoding": "gpt2", "pattern": "x"}, "cannot combine --encoding with --pattern"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    arguments: dict[str, Any], what: str
) -> None:
    with pytest.raises(UserError) as caught:
        chosen_encoding(**arguments)
    assert caught.value.what == what


@pytest.mark.parametrize("content", ["", "[]", '{"a": "b"}', '{"a": 1.5}', "\x00"])
def test_a_file_that_holds_no_special_tokens_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "specials.json"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        chosen_encoding("", GPT2, path)
    assert (caught.value.what, caught.value.where) == (
        "cannot read the special tokens",
        str(path),
    )


def test_what_is_given_is_found_beside_the_file(tmp_path: Path) -> None:
    given = explicit(r"\s|\S", endoftext=300)
    path = written(tmp_path, "tokenizer.tiktoken")
    (tmp_path / "rank_encoding.json").write_bytes(given.data())
    assert load_tokenizer_file(tmp_path) == replace(
        load_tokenizer_file(path, given), origin=str(tmp_path)
    )
    assert json.loads(given.data()) == {"pattern": r"\s|\S", "special_tokens": {END: 300}}

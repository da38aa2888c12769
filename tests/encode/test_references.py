"""The libraries that own the tokenizers' files: ids, offsets, and what stands around a text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kit import (
    BYTE_LEVEL,
    Json,
    added_token,
    as_file,
    byte_level_json,
    documents,
    sentencepiece_json,
    sentencepiece_model,
)
from trained_kit import SENTENCES, trained

from tokenmill.core.errors import UserError
from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.tokenizer import TokenizerFile

TEXT = "Hello  wörld 😀\n"


def huggingface(tokenizer: Json, control_tokens: bool = False) -> Reference:
    return HuggingFaceReference(as_file(tokenizer), control_tokens)


def sentencepiece(kind: str = "bpe", **config: Any) -> Reference:
    return load_reference(
        TokenizerFile("sentencepiece", sentencepiece_model(kind), config=config), False
    )


def tiktoken(name: str, control_tokens: bool = False) -> Reference:
    pytest.importorskip("tiktoken")
    return load_reference(trained(name), control_tokens)


def pieces(reference: Reference, text: str) -> list[tuple[int, str]]:
    """Each id with the piece of the text that its offsets name."""
    ids, starts, stops = reference.encode_with_offsets(text)
    return [(int(i), text[a:b]) for i, a, b in zip(ids, starts, stops, strict=True)]


def template(*pieces: str) -> Json:
    """A TemplateProcessing, "$A" standing for the text; <s> is 259, </s> 260."""
    known = {"<s>": 259, "</s>": 260}
    single: list[Json] = [
        {"Sequence": {"id": "A", "type_id": 0}}
        if piece == "$A"
        else {"SpecialToken": {"id": piece, "type_id": 0}}
        for piece in pieces
    ]
    specials = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in known.items()}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": specials,
    }


SPECIALS = [added_token("<s>", 259, special=True), added_token("</s>", 260, special=True)]


def test_tokenizers_gives_the_ids_and_the_characters_of_every_token() -> None:
    assert pieces(huggingface(byte_level_json()), "abc a") == [(258, "abc"), (256, " a")]


def test_a_post_processor_that_trims_offsets_takes_no_space_from_a_token() -> None:
    reference = huggingface(byte_level_json(post_processor=BYTE_LEVEL))
    assert pieces(reference, "b a") == [(98, "b"), (256, " a")]


@pytest.mark.parametrize(
    ("post_processor", "prefix", "suffix"),
    [
        (None, (), ()),
        (BYTE_LEVEL, (), ()),
        (template("<s>", "$A"), (259,), ()),
        (template("$A", "</s>"), (), (260,)),
        (template("<s>", "$A", "</s>"), (259,), (260,)),
        (template("<s>", "<s>", "$A", "</s>", "<s>"), (259, 259), (260, 259)),
    ],
    ids=["none", "ByteLevel", "BOS", "EOS", "both", "several"],
)
def test_what_the_post_processor_adds_is_known_and_never_part_of_the_ids(
    post_processor: Json | None, prefix: tuple[int, ...], suffix: tuple[int, ...]
) -> None:
    tokenizer = byte_level_json(added_tokens=SPECIALS, post_processor=post_processor)
    reference = huggingface(tokenizer)
    assert (reference.prefix, reference.suffix) == (prefix, suffix)
    assert documents(reference.encode(["a", "", "abc"])) == [[97], [], [258]]
    assert pieces(reference, "a") == [(97, "a")]


def test_a_vocabulary_in_which_a_is_nothing_still_tells_what_surrounds_a_text() -> None:
    tokenizer = byte_level_json(
        model={"vocab": {"z": 0, "<s>": 259, "</s>": 260}, "merges": []},
        pre_tokenizer=None,
        post_processor=template("<s>", "$A", "</s>"),
    )
    reference = huggingface(tokenizer)
    assert documents(reference.encode(["a", "zaz"])) == [[], [0, 0]]
    assert (reference.prefix, reference.suffix) == ((259,), (260,))


def test_special_tokens_are_the_added_ones_that_say_so() -> None:
    tokens = [*SPECIALS, added_token("plain", 261)]
    reference = huggingface(byte_level_json(added_tokens=tokens))
    assert reference.special_tokens == {"<s>": 259, "</s>": 260}
    assert reference.token_id("plain") == 261
    assert reference.token_id("no such token") is None


def test_special_strings_in_text_are_text_unless_control_tokens_are_asked_for() -> None:
    tokenizer = byte_level_json(added_tokens=SPECIALS)
    text = "a<s>"
    assert documents(huggingface(tokenizer).encode([text])) == [list(b"a<s>")]
    assert documents(huggingface(tokenizer, True).encode([text])) == [[97, 259]]
    assert pieces(huggingface(tokenizer, True), text) == [(97, "a"), (259, "<s>")]


def test_the_unknown_token_of_unigram_is_an_id() -> None:
    model = {"type": "Unigram", "unk_id": 1, "vocab": [["a", -1.0], ["<unk>", 0.0]]}
    tokenizer = byte_level_json(pre_tokenizer=None, decoder=None) | {"model": model}
    reference = huggingface(tokenizer)
    assert reference.unk_id == 1
    assert documents(reference.encode(["ab"])) == [[0, 1]]


def test_a_tokenizer_with_dropout_is_refused() -> None:
    with pytest.raises(UserError, match=r"dropout of 0\.1 makes ids random"):
        huggingface(byte_level_json(model={"dropout": 0.1}))


def test_added_tokens_that_the_normalizer_makes_equal_are_refused() -> None:
    """The library keeps them in a hash map, so each process would find another of them."""
    tokens = [added_token("<E>", 259, normalized=True), added_token("<e>", 260, normalized=True)]
    lower = {"type": "Lowercase"}
    with pytest.raises(UserError, match="the tokenizer is random") as caught:
        huggingface(byte_level_json(added_tokens=tokens, normalizer=lower))
    assert caught.value.why == "its normalizer makes the added tokens '<E>' and '<e>' equal"
    raw = [{**tokens[0], "normalized": False}, tokens[1]]
    huggingface(byte_level_json(added_tokens=raw, normalizer=lower))
    huggingface(byte_level_json(added_tokens=tokens))


def test_long_batches_are_encoded_in_several_calls_with_the_same_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["abc" * n for n in range(40)]
    reference = huggingface(byte_level_json())
    whole = documents(reference.encode(texts))
    monkeypatch.setattr("tokenmill.encode.references.huggingface.CALL_CHARACTERS", 10)
    assert documents(reference.encode(texts)) == whole == [[258] * n for n in range(40)]


def test_llama_style_tokens_name_their_characters() -> None:
    reference = huggingface(sentencepiece_json())
    assert documents(reference.encode(["a b"])) == [[261, 259, 262]]
    assert pieces(reference, "a b") == [(261, "a"), (259, " "), (262, "b")]
    assert [piece for _, piece in pieces(reference, "中")] == ["中"] * 4


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece_gives_the_ids_and_the_characters_of_every_token(kind: str) -> None:
    reference = sentencepiece(kind)
    text = "fox  über 😀 日"
    ids = documents(reference.encode([text]))[0]
    found = pieces(reference, text)
    assert [i for i, _ in found] == ids
    assert reference.decode(ids) == "fox über 😀 日"  # its normalizer joins spaces
    assert [piece for _, piece in found].count("日") == 3
    assert [piece for _, piece in found].count("😀") == 4


def test_sentencepiece_knows_its_control_tokens_and_its_unknown_one() -> None:
    reference = sentencepiece()
    assert reference.special_tokens == {"<s>": 1, "</s>": 2}
    assert reference.unk_id == 0
    assert reference.token_id("</s>") == 2
    assert reference.token_id("no such piece") is None
    assert reference.largest_id >= 258


def test_sentencepiece_reads_control_tokens_in_text_as_text() -> None:
    assert 2 not in documents(sentencepiece().encode(["</s>"]))[0]
    file = TokenizerFile("sentencepiece", sentencepiece_model())
    with pytest.raises(UserError, match="cannot match control tokens"):
        load_reference(file, True)


@pytest.mark.parametrize(("config", "prefix"), [({}, ()), ({"add_bos_token": True}, (1,))])
def test_sentencepiece_has_a_prefix_where_its_config_says_so(
    config: dict[str, Any], prefix: tuple[int, ...]
) -> None:
    assert sentencepiece(**config).prefix == prefix
    assert sentencepiece(**config).suffix == ()


def test_a_rank_file_gives_the_ids_and_characters_of_an_equal_tokenizer_json() -> None:
    from_ranks = tiktoken("gpt2.tiktoken")
    from_json = load_reference(trained("gpt2"), False)
    texts = [TEXT, "", *SENTENCES]
    assert documents(from_ranks.encode(texts)) == documents(from_json.encode(texts))
    for text in texts:
        assert pieces(from_ranks, text) == pieces(from_json, text)


def test_tiktoken_reads_special_strings_as_text_or_as_control_tokens() -> None:
    text = "a<|endoftext|>"
    as_text = documents(tiktoken("gpt2.tiktoken").encode([text]))[0]
    assert 50256 not in as_text
    a = tiktoken("gpt2.tiktoken").token_id("a")
    assert documents(tiktoken("gpt2.tiktoken", True).encode([text])) == [[a, 50256]]
    found = pieces(tiktoken("gpt2.tiktoken", True), text)
    assert found == [(a, "a"), (50256, "<|endoftext|>")]


REFERENCES = ["byte-level", "byte-level NFC", "llama", "sentencepiece", "gpt2.tiktoken"]


@pytest.fixture(scope="module", params=REFERENCES)
def any_reference(request: pytest.FixtureRequest) -> Reference:
    if request.param == "byte-level":
        return huggingface(byte_level_json())
    if request.param == "byte-level NFC":
        nfc = byte_level_json(normalizer={"type": "NFC"}, post_processor=BYTE_LEVEL)
        return huggingface(nfc)
    if request.param == "llama":
        return huggingface(sentencepiece_json())
    return sentencepiece() if request.param == "sentencepiece" else tiktoken(request.param)


alphabet = st.sampled_from("abc  \n'1ä日😀\u0301\u200d")


@settings(deadline=None)
@given(st.text(alphabet, max_size=30))
def test_offsets_lie_in_the_text_in_order_and_leave_no_letter_out(
    any_reference: Reference, text: str
) -> None:
    ids, starts, stops = any_reference.encode_with_offsets(text)
    ranges = list(zip(starts.tolist(), stops.tolist(), strict=True))
    assert ids.tolist() == documents(any_reference.encode([text]))[0]
    assert all(0 <= start <= stop <= len(text) for start, stop in ranges)
    assert starts.tolist() == sorted(starts.tolist())
    covered = {place for start, stop in ranges for place in range(start, stop)}
    assert covered >= {place for place, letter in enumerate(text) if letter in "abc1ä日😀"}

"""Trimming: which tokens go, and what becomes of texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encode.tokenizer_kit import added_token, byte_level_json, sentencepiece_json
from encode.trained_kit import SENTENCES, trained
from tokenmill.core.errors import UserError
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.changing.base import open_base
from tokenmill.vocabulary.changing.extend import extend
from tokenmill.vocabulary.changing.trim import renumbered_config, trim
from vocabulary.changing.changing_kit import (
    Json,
    counted,
    library,
    opened,
    texts_of_few_letters,
    tokens_of,
)


def with_merges(*merges: tuple[str, str], **changes: Any) -> Json:
    """256 bytes, then the tokens of the merges."""
    vocab = {token: i for token, i in byte_level_json()["model"]["vocab"].items() if i < 256}
    for merge in merges:
        vocab.setdefault("".join(merge), len(vocab))
    pairs = [list(merge) for merge in merges]
    return byte_level_json(model={"vocab": vocab, "merges": pairs}, **changes)


def test_the_least_frequent_leaf_goes_first_and_its_parts_inherit() -> None:
    base = opened(with_merges(("a", "b"), ("c", "d"), ("ab", "cd"), ("e", "f")))
    words = WordCounts.of({b"abcd": 5, b"ef": 7, b"cd": 1})
    found = trim(base, words, 257)
    # "abcd" (5) goes before "ef" (7). Then "ab" has 5, and "cd" 6.
    assert found.tokens == ["abcd", "ab", "cd"]
    assert (found.figures["tokens_before"], found.figures["tokens_after"]) == (13, 29)
    assert found.new_ids[256:] == [None, None, None, 256]
    assert found.document["model"]["merges"] == [["e", "f"]]


def test_a_part_that_is_left_over_may_join_its_neighbour() -> None:
    base = opened(with_merges(("a", "b"), ("b", "c"), ("x", "y")))
    found = trim(base, WordCounts.of({b"bc": 9, b"xy": 9, b"abc": 1}), 258)
    assert found.tokens == ["ab"]
    assert tokens_of(base.document, "abc") == ["ab", "c"]
    assert tokens_of(found.document, "abc") == ["a", "bc"]


@settings(deadline=None, max_examples=30)
@given(
    learnt=texts_of_few_letters,
    texts=texts_of_few_letters,
    size=st.integers(256, 270),
    ignore_merges=st.booleans(),
)
def test_texts_change_only_where_a_removed_token_was(
    learnt: list[str], texts: list[str], size: int, ignore_merges: bool
) -> None:
    base = opened(byte_level_json(model={"ignore_merges": ignore_merges}))
    base = opened(extend(base, counted(base, [*learnt, "adad adad"]), 8, 1).document)
    words = counted(base, texts)
    if size >= len(base.tokens):
        with pytest.raises(UserError, match="nothing to trim"):
            trim(base, words, size)
        return
    found = trim(base, words, size)
    vocab = found.document["model"]["vocab"]
    assert len(vocab) == size
    assert sorted(vocab.values()) == list(range(size))
    assert all(found.new_ids[base.tokens[token]] == vocab[token] for token in vocab)
    assert not vocab.keys() & set(found.tokens)
    sides = {side for merge in found.document["model"]["merges"] for side in merge}
    assert sides <= vocab.keys()
    for text in [*texts, *learnt, " ".join(texts)]:
        before, after = tokens_of(base.document, text), tokens_of(found.document, text)
        assert "".join(after) == "".join(before)
        if not set(found.tokens) & set(before):
            assert after == before
    ours, theirs = library(found.document), library(base.document)
    for token in vocab:
        if theirs.encode(base.shown(token)).tokens == [token]:
            assert ours.encode(base.shown(token)).tokens == [token]


def test_added_tokens_bytes_and_characters_stay() -> None:
    base = opened(sentencepiece_json())
    with pytest.raises(
        UserError, match=r"trim the tokenizer to 200(.|\n)*286 tokens cannot be removed"
    ):
        trim(base, WordCounts.of({b"a": 1}), 200)
    found = trim(base, WordCounts.of({b"a": 1}), len(base.tokens) - 1)
    assert found.tokens == ["▁a"]


def test_a_part_of_an_added_token_stays() -> None:
    base = opened(with_merges(("a", "b"), ("ab", "c"), added_tokens=[added_token("abc", 257)]))
    with pytest.raises(UserError, match="cannot trim the tokenizer below 258"):
        trim(base, WordCounts.of({b"x": 1}), 257)


def test_ids_follow_everywhere() -> None:
    vocab = with_merges(("a", "b"), ("c", "d"))["model"]["vocab"] | {"<s>": 258, "</s>": 259}
    around = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in [("<s>", 258)]}
    template = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": around,
    }
    document = with_merges(
        ("a", "b"),
        ("c", "d"),
        added_tokens=[added_token(name, vocab[name], special=True) for name in ("<s>", "</s>")],
        post_processor={"type": "Sequence", "processors": [template]},
        padding={
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 259,
            "pad_type_id": 0,
            "pad_token": "</s>",
        },
    )
    document["model"]["vocab"] = vocab
    found = trim(opened(document), WordCounts.of({b"cd": 1}), 259)
    tokenizer = library(found.document)
    assert tokenizer.encode("cd").ids == [257, 256]
    assert tokenizer.padding["pad_id"] == tokenizer.token_to_id("</s>") == 258
    assert [token["id"] for token in found.document["added_tokens"]] == [257, 258]
    config = {"eos_token": "</s>", "added_tokens_decoder": {"258": {"content": "<s>"}}}
    assert renumbered_config(config, found.new_ids) == {
        "eos_token": "</s>",
        "added_tokens_decoder": {"257": {"content": "<s>"}},
    }


def test_a_configuration_with_an_id_of_no_token_is_refused() -> None:
    ends = {"type": "BertProcessing", "sep": ["b", 98], "cls": ["ab", 256]}
    base = opened(with_merges(("a", "b"), ("c", "d"), post_processor=ends))
    with pytest.raises(UserError, match="names id 256, but no token has this id"):
        trim(base, WordCounts.of({b"cd": 1}), 257)


@pytest.mark.parametrize("name", ["gpt2", "neox", "dolma2", "llama3.tiktoken"])
def test_pipelines_of_published_tokenizers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenmill.encode.published_encodings import ENCODINGS

    monkeypatch.setitem(ENCODINGS["llama3"].special_tokens, "<|begin_of_text|>", 950)
    base = open_base(trained(name))
    found = trim(base, counted(base, SENTENCES[:6]), len(base.tokens) - 200)
    assert found.figures["tokens_after"] == found.figures["tokens_before"]
    old, new = library(base.document), library(found.document)
    for text in [*SENTENCES, "<|endoftext|> is text here", "  two  spaces "]:
        assert new.decode(new.encode(text).ids) == old.decode(old.encode(text).ids)


def test_tokens_of_long_runs_are_cut_in_steps_that_grow_with_their_length() -> None:
    runs = ["x" * (1 << i) for i in range(15)]
    base = opened(with_merges(*((run, run) for run in runs[:-1])))
    found = trim(base, WordCounts.of({runs[-1].encode(): 1}), 256)
    assert found.tokens == runs[:0:-1]
    assert (found.figures["tokens_before"], found.figures["tokens_after"]) == (1, 1 << 14)

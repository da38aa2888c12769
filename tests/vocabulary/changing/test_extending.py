"""Continued BPE: what it adds, and what stays as it was."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encode.tokenizer_kit import added_token, byte_level_json, sentencepiece_json
from encode.trained_kit import SENTENCES, trained
from tokenmill.core.errors import UserError
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.changing.base import Base, open_base
from tokenmill.vocabulary.changing.extend import extend
from vocabulary.changing.changing_kit import (
    Json,
    boundaries,
    counted,
    library,
    opened,
    texts_of_few_letters,
    tokens_of,
)


def merges_of(document: Json) -> list[list[str]]:
    return [list(merge) for merge in document["model"]["merges"]]


def continued(base: Base, texts: list[str], add: int, min_frequency: int) -> list[list[str]]:
    """The new merges, counted anew for each: most occurrences, then the smaller ids."""
    words = Counter(tuple(tokens_of(base.document, text)) for text in texts)
    ids = dict(base.tokens)
    merges: list[list[str]] = []
    while len(ids) < len(base.tokens) + add:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        ranked = sorted((-count, ids[a], ids[b], (a, b)) for (a, b), count in pairs.items())
        if not ranked or -ranked[0][0] < min_frequency:
            break
        pair = ranked[0][3]
        merges.append(list(pair))
        ids.setdefault("".join(pair), max(ids.values()) + 1)
        words = Counter({_merged(word, pair): count for word, count in words.items()})
    return merges


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    made: list[str] = []
    for token in word:
        if made and (made[-1], token) == pair and made[-1] is not None:
            made[-1] = "".join(pair)
        else:
            made.append(token)
    return tuple(made)


@settings(deadline=None, max_examples=60)
@given(
    texts=texts_of_few_letters,
    add=st.integers(1, 12),
    min_frequency=st.integers(1, 3),
    ignore_merges=st.booleans(),
)
def test_new_merges_join_what_was_cut_before(
    texts: list[str], add: int, min_frequency: int, ignore_merges: bool
) -> None:
    texts = [text.replace(" ", "") for text in texts]  # one text is one word
    base = opened(byte_level_json(model={"ignore_merges": ignore_merges}))
    words = counted(base, texts)
    expected = continued(base, texts, add, min_frequency)
    if not expected:
        with pytest.raises(UserError, match="found no tokens to add"):
            extend(base, words, add, min_frequency)
        return
    found = extend(base, words, add, min_frequency)
    document = found.document
    assert merges_of(document) == merges_of(base.document) + expected
    assert list(document["model"]["vocab"].items())[: len(base.tokens)] == list(base.tokens.items())
    assert list(document["model"]["vocab"].values()) == list(range(259 + len(found.tokens)))
    assert found.figures["tokens_after"] == sum(len(tokens_of(document, text)) for text in texts)
    for text in [*texts, "".join(texts), " ".join(texts)]:
        old, new = tokens_of(base.document, text), tokens_of(document, text)
        assert boundaries(new) <= boundaries(old)
        assert "".join(new) == "".join(old)
    for token, row in zip(found.tokens, found.rows, strict=True):
        spelled = [list(base.tokens)[i] for i in row]
        assert "".join(spelled) == token
        assert tokens_of(document, base.shown(token)) == [token] or "\\x" in base.shown(token)


def test_ids_are_those_behind_the_special_tokens() -> None:
    specials = [added_token("<|end|>", 300, special=True), added_token("<|pad|>", 301)]
    vocab = byte_level_json()["model"]["vocab"] | {"<|end|>": 300, "<|pad|>": 301}
    base = opened(byte_level_json(added_tokens=specials, model={"vocab": vocab}))
    found = extend(base, WordCounts.of({b"bcbc": 5, b"bcd": 3}), 2)
    assert found.tokens == ["bcbc", "bcd"]
    assert found.rows == [[257, 257], [257, 100]]
    extended = library(found.document)
    assert extended.get_vocab() == {**vocab, "bcbc": 302, "bcd": 303}
    assert {i: t.content for i, t in extended.get_added_tokens_decoder().items()} == {
        300: "<|end|>",
        301: "<|pad|>",
    }


def test_nothing_is_learnt_from_the_string_of_an_added_token() -> None:
    end = added_token("bcb", 259, special=True)
    base = opened(byte_level_json(added_tokens=[end]))
    found = extend(base, WordCounts.of({b"bcb": 50, b"xbcbx": 50, b"dede": 2}), 8)
    assert found.tokens == ["de", "dede"]
    assert found.figures["words_left_out"] == 2
    assert library(found.document).encode("bcb").ids == [257, 98]


def test_an_added_token_that_would_be_taken_for_a_word_is_refused() -> None:
    model = {"ignore_merges": True}
    with pytest.raises(UserError, match="one is also a word"):
        opened(byte_level_json(added_tokens=[added_token("pad", 259, special=True)], model=model))
    opened(byte_level_json(added_tokens=[added_token("<|pad|>", 259, special=True)], model=model))


def test_bytes_and_unknown_characters_never_merge() -> None:
    base = opened(sentencepiece_json())
    found = extend(base, WordCounts.of({"▁aéb".encode(): 9, "▁aab".encode(): 3}), 9)
    assert found.tokens == ["ab", "▁aab"]
    assert tokens_of(found.document, "aéb") == ["▁a", "<0xC3>", "<0xA9>", "b"]


def test_an_old_token_that_no_merge_led_to_is_made_by_a_new_one() -> None:
    vocab = byte_level_json()["model"]["vocab"] | {"de": 259}
    base = opened(byte_level_json(model={"vocab": vocab}))
    found = extend(base, WordCounts.of({b"de": 5, b"dex": 4}), 1)
    assert (found.figures["revived"], found.tokens, found.rows) == (1, ["dex"], [[100, 101, 120]])
    assert tokens_of(found.document, "dex") == ["dex"]
    assert library(found.document).token_to_id("de") == 259


@pytest.mark.parametrize("name", ["gpt2", "neox", "dolma2", "llama2", "llama3.tiktoken"])
def test_pipelines_of_published_tokenizers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenmill.encode.published_encodings import ENCODINGS

    if name.endswith("tiktoken"):
        known = ENCODINGS["llama3"]
        monkeypatch.setitem(known.special_tokens, "<|begin_of_text|>", 950)
    base = open_base(trained(name))
    texts = [f"{sentence} Kardiomyopathie {i % 3}" for i, sentence in enumerate(SENTENCES)]
    if name == "llama2":
        pieces = Counter("▁" + word for text in texts for word in text.split(" ") if word)
        words = WordCounts.of({word.encode(): count for word, count in pieces.items()})
    else:
        words = counted(base, texts)
    found = extend(base, words, 50)
    assert len(found.tokens) >= 9  # most pairs occur once
    assert found.figures["tokens_after"] < found.figures["tokens_before"]
    old, new = library(base.document), library(found.document)
    for text in [*texts, *SENTENCES, "<|endoftext|> is text here", "  two  spaces "]:
        before, after = old.encode(text).tokens, new.encode(text).tokens
        assert boundaries(after) <= boundaries(before)
        assert new.decode(new.encode(text).ids) == old.decode(old.encode(text).ids)
    assert {token: new.token_to_id(token) for token in base.tokens} == base.tokens


def test_strings_of_merges_stay_strings() -> None:
    merges = [" ".join(merge) for merge in byte_level_json()["model"]["merges"]]
    base = opened(byte_level_json(model={"merges": ["#version: 0.2", *merges]}))
    found = extend(base, WordCounts.of({b"dede": 2}), 1)
    assert found.document["model"]["merges"] == ["#version: 0.2", *merges, "d e"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": {"end_of_word_suffix": "</w>"}}, "prefix or suffix"),
        ({"model": {"type": "WordLevel", "unk_token": "a"}}, "its model is WordLevel"),
        ({"added_tokens": [added_token("x", 97), added_token("yy", 259)]}, ""),
    ],
)
def test_what_cannot_be_extended_exactly_is_refused(changes: Any, why: str) -> None:
    document = byte_level_json(**changes)
    if not why:
        assert opened(document).tokens["x"] == 120
        return
    with pytest.raises(UserError, match=why):
        opened(document)


def test_a_word_that_is_no_text_is_found() -> None:
    from tokenmill.core.errors import VerificationError

    base = opened(sentencepiece_json())
    with pytest.raises(VerificationError, match="not valid UTF-8"):
        extend(base, WordCounts.of({b"a\xff": 2}), 1)

"""Random small tokenizers: whatever the gate admits must encode as the reference does."""

from __future__ import annotations

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pipeline_kit import LOWERCASE, NFC, NFKC, NMT, STRIP_ACCENTS, STRIP_RIGHT, normalizers
from tokenizer_kit import (
    Json,
    added_token,
    as_file,
    byte_level_json,
    replace,
    sentencepiece_json,
)

from tokenmill.core.errors import EngineError, UserError
from tokenmill.encode.engine import Encoder
from tokenmill.encode.engine_ranking import load_engine, rank_engines
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.kinds import load_reference

LETTERS = "abcxy"
WORDS = st.text(LETTERS, min_size=1, max_size=3)
CHARACTERS = LETTERS + " <>s/é\n｜▁e\u0301\u0323\x1c"
STEPS = [NFC, NFKC, {"type": "NFD"}, LOWERCASE, NMT, STRIP_ACCENTS, STRIP_RIGHT]
STEPS += [replace(" ", "▁"), replace("x", "e"), {"type": "Prepend", "prepend": "▁"}]
NORMALIZERS = st.lists(st.sampled_from(STEPS), min_size=2, max_size=4).map(
    lambda s: normalizers(*s)
)
TEXTS = st.lists(st.text(CHARACTERS, max_size=12), min_size=1, max_size=12)


@st.composite
def merge_lists(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Merges of letters and of what earlier merges made, none of them twice."""
    known = ["▁", *LETTERS]
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 8))):
        pair = (draw(st.sampled_from(known)), draw(st.sampled_from(known)))
        if pair not in merges:
            merges.append(pair)
            known.append("".join(pair))
    return merges


@st.composite
def sentencepiece_tokenizers(draw: st.DrawFn) -> Json:
    """Merges, some letters that are no tokens, some tokens that no merge reaches."""
    vocab: dict[str, int] = {**sentencepiece_json()["model"]["vocab"]}
    letters = draw(st.sets(st.sampled_from(LETTERS)))
    merges = [
        (left, right)
        for left, right in draw(merge_lists())
        if set(left + right) <= {*letters, "▁", "a", "b", "x"}
    ]
    tokens = [*sorted(letters), *map("".join, merges), *draw(st.lists(WORDS, max_size=2))]
    for token in tokens:
        vocab.setdefault(token, len(vocab))
    model = {"vocab": vocab, "merges": [list(pair) for pair in merges]}
    if draw(st.booleans()):
        return sentencepiece_json(model=model)
    return sentencepiece_json(model=model, normalizer=draw(NORMALIZERS))


@st.composite
def byte_level_tokenizers(draw: st.DrawFn) -> Json:
    """Merges and added tokens, raw and normalized, that may overlap."""
    base = byte_level_json()["model"]
    vocab = {token: i for token, i in base["vocab"].items() if i < 256}
    merges = [pair for pair in draw(merge_lists()) if "▁" not in "".join(pair)]
    for token in map("".join, merges):
        vocab.setdefault(token, len(vocab))
    letters = draw(st.sampled_from(["xyz", "xy｜▁", "é\u0301e"]))
    contents = draw(st.lists(st.text(letters, min_size=2, max_size=4), max_size=3, unique=True))
    added = [
        added_token(
            content,
            vocab.get(content, len(vocab) + place),
            normalized=draw(st.booleans()),
            special=draw(st.booleans()),
        )
        for place, content in enumerate(contents)
    ]
    model = {"vocab": vocab, "merges": [list(pair) for pair in merges]}
    normalizer = draw(st.sampled_from([None, normalizers()]) | NORMALIZERS)
    return byte_level_json(model=model, added_tokens=added, normalizer=normalizer)


ANY_TOKENIZER = st.one_of(sentencepiece_tokenizers(), byte_level_tokenizers())


@settings(max_examples=20, deadline=None)  # a third of a second each; the soak has 3,000
@given(ANY_TOKENIZER, TEXTS, st.booleans())
def test_what_the_gate_admits_is_exact(
    tokenizer: Json, texts: list[str], control_tokens: bool
) -> None:
    check_engines(tokenizer, texts, control_tokens)


@pytest.mark.soak
@settings(max_examples=3000, deadline=None)
@given(ANY_TOKENIZER, TEXTS, st.booleans())
def test_what_the_gate_admits_of_many_tokenizers_is_exact(
    tokenizer: Json, texts: list[str], control_tokens: bool
) -> None:
    check_engines(tokenizer, texts, control_tokens)


def check_engines(tokenizer: Json, texts: list[str], control_tokens: bool) -> None:
    """Every engine that may encode for a tokenizer gives the ids of the reference."""
    pytest.importorskip("fastokens")
    file = as_file(tokenizer)
    try:
        reference = load_reference(file, control_tokens)
        expected = Encoder(reference, reference.largest_id).encode(texts)
    except UserError as error:
        if error.what != "the tokenizer is random":
            raise
        reject()
    except EngineError as error:  # the library panics where a normalizer makes an added token
        if "AddedVocabulary bad split" not in error.why:
            raise
        reject()
    for name in rank_engines(file, control_tokens).names:
        found = load_engine(name, file, control_tokens, 1 << 30).encode(texts)
        compare_tokens(name, texts, found, expected)

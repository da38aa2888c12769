"""The tokenizer.json that equals a rank file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trained_kit import SENTENCES, trained

from tokenmill.core.errors import EngineError
from tokenmill.encode.encodings import encoding_of, parse_ranks, spelled_ranks
from tokenmill.encode.engine_ranking import first_exact, load_engine, rank_engines
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.rank_json import merges_of, outline_of_ranks, ranks_to_json
from tokenmill.encode.tokenizer import TokenizerFile

pytest.importorskip("tiktoken")
pytest.importorskip("fastokens")

Json = dict[str, Any]
BYTES = [bytes([byte]) for byte in range(256)]
END = 256
"""The first rank that no byte has."""


def rank_file(ranks: dict[bytes, int], encoding: str) -> TokenizerFile:
    data = spelled_ranks({byte: rank for rank, byte in enumerate(BYTES)} | ranks)
    return TokenizerFile("tiktoken", data.replace(b"\n ", b"\n= "), encoding)


def chosen_engine(file: TokenizerFile) -> str:
    def load(name: str) -> Any:
        return load_engine(name, file, False, 1 << 30)

    names, vetoes = rank_engines(file, False).names, list[str]()
    engine = first_exact(
        names, load, load_reference(file, False), SENTENCES, lambda name, _: vetoes.append(name)
    )
    assert not vetoes
    return engine.name


def every_split(tokens: list[bytes]) -> list[tuple[int, int]]:
    """`merges_of`, one by one."""
    places = {token: place for place, token in enumerate(tokens)}
    return [
        pair
        for token in tokens
        for pair in sorted(
            (places[token[:cut]], places[token[cut:]])
            for cut in range(1, len(token))
            if token[:cut] in places and token[cut:] in places
        )
    ]


@settings(deadline=None)
@given(st.lists(st.text("abc", max_size=6).map(str.encode), max_size=30, unique=True))
def test_every_way_to_split_a_token_into_two_is_a_merge(tokens: list[bytes]) -> None:
    lefts, rights = merges_of(tokens)
    assert list(zip(lefts.tolist(), rights.tolist(), strict=True)) == every_split(tokens)


def test_free_ids_are_filled_for_engines_and_the_empty_token_is_not_spelled() -> None:
    file = rank_file({b"": 256, b"ab": 258}, "gpt2")
    plain, filled = (
        json.loads(ranks_to_json(file.data, ENCODINGS["gpt2"], fill=fill) or b"")
        for fill in (False, True)
    )
    assert {token: i for token, i in plain["model"]["vocab"].items() if i >= END} == {
        "": 256,
        "ab": 258,
    }
    assert {token: i for token, i in filled["model"]["vocab"].items() if i >= END} == {
        "ab": 258,
        "\U0010ffff256": 256,
        "\U0010ffff257": 257,
    }


@pytest.mark.parametrize("name", ENCODINGS)
def test_an_outline_has_the_steps_of_the_whole(name: str) -> None:
    outline = outline_of_ranks(ENCODINGS[name])
    data = ranks_to_json(rank_file({}, name).data, ENCODINGS[name])
    assert outline is not None
    whole = json.loads(data or b"")
    assert {**outline["model"], "merges": []} == whole["model"]
    assert {**outline, "model": None} == {**whole, "model": None}


@pytest.mark.parametrize("name", ["p50k_base", "cl100k_base", "o200k_base", "qwen", "whisper"])
def test_every_published_pattern_has_a_fast_engine(name: str) -> None:
    pieces = [token for token in parse_ranks(trained("gpt2.tiktoken").data) if len(token) > 1]
    ranks = {b"": END, **{token: END + 2 + i for i, token in enumerate(pieces)}}  # none has END + 1
    assert chosen_engine(rank_file(ranks, name)) == "fastokens"


@st.composite
def small_ranks(draw: st.DrawFn) -> dict[bytes, int]:
    """Tokens of a few letters in any order, some of which no merges make."""
    words = st.text(" abc", min_size=2, max_size=5).map(str.encode)
    tokens = draw(st.lists(words, max_size=12, unique=True))
    places = draw(st.permutations(range(END, END + 2 * len(tokens))))
    return dict(zip(tokens, places, strict=False))


@settings(max_examples=10, deadline=None)
@given(small_ranks(), st.lists(st.text(" abc's\u017f", max_size=16), min_size=1, max_size=50))
def test_an_engine_encodes_as_tiktoken_whatever_the_order_of_ranks(
    ranks: dict[bytes, int], texts: list[str]
) -> None:
    file = rank_file(ranks, "o200k_base")
    expected = load_reference(file, False).encode(texts)
    found = load_engine("fastokens", file, False, 1 << 30).encode(texts)
    compare_tokens("fastokens", texts, found, expected)


def test_merges_that_would_fill_the_memory_are_not_written() -> None:
    ranks = {b"a" * size: END + size for size in range(2, 700)}
    file = rank_file(ranks, "gpt2")
    assert rank_engines(file, False).names[0] == "fastokens"
    assert ranks_to_json(file.data, encoding_of(file)) is None
    with pytest.raises(EngineError, match="cannot encode a tiktoken tokenizer"):
        load_engine("fastokens", file, False, 1 << 20)

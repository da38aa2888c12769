"""Character spans to token ranges: a token belongs where it shares a character with a span."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kit import (
    BYTE_LEVEL,
    as_file,
    batch_of,
    byte_level_json,
    sentencepiece_json,
    sentencepiece_model,
)
from trained_kit import trained

from tokenmill.core.errors import EngineError
from tokenmill.core.records import CharSpans
from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.spans import SpanEncoder
from tokenmill.encode.token_bytes import byte_level_tokens
from tokenmill.encode.tokenizer import TokenizerFile


def byte_level() -> Reference:
    return HuggingFaceReference(as_file(byte_level_json()), False)


def file_of(name: str) -> TokenizerFile:
    if name.endswith("tiktoken"):
        pytest.importorskip("tiktoken")
    return FILES[name]() if name in FILES else trained(name)


FILES: dict[str, Callable[[], TokenizerFile]] = {
    "byte-level": lambda: as_file(byte_level_json()),
    "trimmed offsets": lambda: as_file(
        byte_level_json(normalizer={"type": "NFC"}, post_processor=BYTE_LEVEL)
    ),
    "llama": lambda: as_file(sentencepiece_json()),
    "sentencepiece": lambda: TokenizerFile("sentencepiece", sentencepiece_model()),
}


@dataclass(frozen=True)
class Case:
    """A reference, and what is known of its tokens."""

    reference: Reference
    tokens: dict[int, bytes]

    def ranges(self, text: str, spans: CharSpans, shift: int = 0) -> CharSpans:
        encoder = SpanEncoder(lambda: self.reference, lambda: self.tokens)
        return encoder.ranges([text], [spans], self.reference.encode([text]), shift)[0]


@pytest.fixture(scope="module", params=[*FILES, "gpt2.tiktoken", "neox", "llama2"])
def case(request: pytest.FixtureRequest) -> Case:
    file = file_of(request.param)
    return Case(load_reference(file, False), byte_level_tokens(file))


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], []),
        ([(0, 3)], [(0, 1)]),  # "abc"
        ([(1, 2)], [(0, 1)]),  # a letter of it
        ([(3, 4)], [(1, 2)]),  # the space of " a"
        ([(2, 4)], [(0, 2)]),
        ([(0, 1), (3, 5)], [(0, 2)]),  # neighbours are merged
        ([(0, 1), (5, 6)], [(0, 1), (2, 4)]),  # "é" is two tokens
        ([(5, 6), (0, 1)], [(0, 1), (2, 4)]),
        ([(0, 3), (1, 2), (0, 3)], [(0, 1)]),
        ([(2, 2)], []),
        ([(0, 6)], [(0, 4)]),
        ([(5, 99)], [(2, 4)]),
        ([(6, 99)], []),
    ],
)
def test_ranges_of_abc_a_and_e_acute(spans: CharSpans, expected: CharSpans) -> None:
    for tokens in ({}, byte_level_tokens(file_of("byte-level"))):
        found = Case(byte_level(), tokens).ranges
        assert found("abc aé", spans) == expected
        assert found("abc aé", spans, shift=2) == [(a + 2, b + 2) for a, b in expected]


texts = st.text(st.sampled_from("abc  \n'1ä日😀\u0301"), max_size=25)
spans = st.lists(
    st.tuples(st.integers(0, 26), st.integers(0, 26)).map(lambda pair: (min(pair), max(pair))),
    max_size=3,
)


@settings(deadline=None)
@given(texts, spans, st.integers(0, 2))
def test_a_token_is_in_a_range_exactly_where_it_shares_a_character_with_a_span(
    case: Case, text: str, spans: CharSpans, shift: int
) -> None:
    _, starts, stops = case.reference.encode_with_offsets(text)
    tokens = [set(range(a, b)) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    marked = {place for start, stop in spans for place in range(start, stop)}
    expected = [i + shift for i, characters in enumerate(tokens) if characters & marked]
    found = case.ranges(text, spans, shift)
    assert [i for start, stop in found for i in range(start, stop)] == expected
    edges = [edge for pair in found for edge in pair]
    assert edges == sorted(set(edges))  # sorted, not empty, and no neighbours touch


def test_the_reference_is_loaded_for_the_first_span_and_once() -> None:
    loaded: list[Reference] = []

    def load() -> Reference:
        loaded.append(byte_level())
        return loaded[-1]

    encoder = SpanEncoder(load)
    assert encoder.ranges(["abc"], [[]], batch_of([258]), 0) == [[]]
    assert loaded == []
    tokens = batch_of([258], [97], [98])
    found = encoder.ranges(["abc", "a", "b"], [[(0, 3)], [], [(0, 1)]], tokens, 1)
    assert found == [[(1, 2)], [], [(1, 2)]]
    assert len(loaded) == 1


def test_no_reference_is_needed_where_the_bytes_of_tokens_are_the_text() -> None:
    def refuse() -> Reference:
        raise AssertionError("the bytes say where the tokens are")

    file = file_of("byte-level")
    encoder = SpanEncoder(refuse, lambda: byte_level_tokens(file))
    tokens = byte_level().encode(["abc aé", ""])
    assert encoder.ranges(["abc aé", ""], [[(5, 6)], [(0, 0)]], tokens, 0) == [[(2, 4)], []]


def test_a_document_that_an_engine_encoded_otherwise_is_refused_with_its_text() -> None:
    with pytest.raises(EngineError, match="ids that differ from the reference") as caught:
        SpanEncoder(byte_level).ranges(["a", "b"], [[], [(0, 1)]], batch_of([97], [99]), 0)
    assert caught.value.where == "text 'b'"

"""fastokens against the reference: every document of every text must have the same ids."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kit import (
    BYTE_LEVEL,
    BYTES_ONLY,
    Json,
    added_token,
    as_file,
    batch_of,
    byte_level_json,
    documents,
    sentencepiece_json,
    sequence,
    split,
)
from trained_kit import NAMES, SENTENCES, trained

from tokenmill.core.records import TokenBatch
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.engine_ranking import load_engine, rank_engines
from tokenmill.encode.engines.fastokens import FastokensEngine, fastokens_routes
from tokenmill.encode.engines.wrappers import RoutedEngine
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.words.patterns import LLAMA3_SPLIT

CACHE_BYTES = 1 << 30

SPECIALS = [added_token("<s>", 259, special=True), added_token("</s>", 260, special=True)]
PLAIN = added_token("<plain>", 261)
SMALL: dict[str, Json] = {
    "ByteLevel": byte_level_json(added_tokens=[*SPECIALS, PLAIN]),
    "Llama 3's split": byte_level_json(
        added_tokens=[*SPECIALS, PLAIN], pre_tokenizer=sequence(split(LLAMA3_SPLIT), BYTES_ONLY)
    ),
    "a prefix space": byte_level_json(pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True}),
    "ignore_merges": byte_level_json(model={"ignore_merges": True}),
    "NFC": byte_level_json(normalizer={"type": "NFC"}),
    "Llama 2": sentencepiece_json(),
    "truncation and padding": byte_level_json(
        truncation={"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        padding={
            "strategy": {"Fixed": 6},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "!",
        },
    ),
}
HAND_MADE = [
    "",
    "abc a",
    "<s>abc</s>",
    "<plain>",
    "",
    "<s",
    " abc\n\n  a",
    "日本 😀 é e\u0301",
    "\x00",
]


def load(file: TokenizerFile, control_tokens: bool = False) -> Engine:
    pytest.importorskip("fastokens")
    assert "fastokens" in rank_engines(file, control_tokens).names
    return load_engine("fastokens", file, control_tokens, CACHE_BYTES)


@pytest.mark.parametrize("control_tokens", [False, True], ids=["text", "control"])
@pytest.mark.parametrize("name", SMALL)
def test_fastokens_encodes_small_tokenizers_as_the_reference_does(
    name: str, control_tokens: bool
) -> None:
    file = as_file(SMALL[name])
    texts = HAND_MADE + adversarial_texts(["<s>", "</s>"])
    found = load(file, control_tokens).encode(texts)
    compare_tokens("fastokens", texts, found, load_reference(file, control_tokens).encode(texts))


@pytest.fixture(scope="module")
def small_engines() -> list[tuple[Engine, Reference]]:
    files = [as_file(SMALL[name]) for name in ("NFC", "Llama 3's split", "Llama 2")]
    return [(load(file), load_reference(file, False)) for file in files]


@settings(deadline=None)
@given(st.lists(st.text(max_size=40), max_size=4))
def test_any_text_has_the_same_ids(
    small_engines: list[tuple[Engine, Reference]], texts: list[str]
) -> None:
    for engine, reference in small_engines:
        assert documents(engine.encode(texts)) == documents(reference.encode(texts))


class Trained:
    """A trained tokenizer, the texts, and what the reference makes of them: computed once."""

    def __init__(self, name: str) -> None:
        if name.endswith("tiktoken"):
            pytest.importorskip("tiktoken")
        self.file = trained(name)
        reference = load_reference(self.file, False)
        special = adversarial_texts(reference.special_tokens)
        # One huge document, since engines cut these up inside.
        self.texts = [*special, "", *SENTENCES, "\n".join(special[::7])]
        self.expected = reference.encode(self.texts)


@pytest.fixture(scope="module", params=NAMES)
def tokenizer(request: pytest.FixtureRequest) -> Trained:
    return Trained(request.param)


def test_fastokens_encodes_trained_tokenizers_as_the_reference_does(tokenizer: Trained) -> None:
    found = load(tokenizer.file).encode(tokenizer.texts)
    compare_tokens("fastokens", tokenizer.texts, found, tokenizer.expected)


@pytest.mark.parametrize("name", ["neox", "dolma2", "llama2"])
def test_fastokens_finds_control_tokens_where_the_reference_finds_them(name: str) -> None:
    file = trained(name)
    reference = load_reference(file, True)
    texts = adversarial_texts(reference.special_tokens)[-800:]
    expected = reference.encode(texts)
    assert set(reference.special_tokens.values()) & set(expected.ids.tolist())
    compare_tokens("fastokens", texts, load(file, True).encode(texts), expected)


class Recorder:
    """Encodes nothing, and remembers what it was asked."""

    name = "recorder"
    version = "1"

    def __init__(self, token: int) -> None:
        self.asked: list[list[str]] = []
        self._token = token

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        self.asked.append(list(texts))
        return batch_of(*([self._token] * len(text) for text in texts))


def routed(engine: Recorder, reference: Recorder, pattern: str = "[é-ü]") -> RoutedEngine:
    return RoutedEngine(engine, re.compile(pattern).search, lambda: reference)  # type: ignore[arg-type,return-value]


def test_documents_with_a_routed_character_are_the_references_and_no_others() -> None:
    engine, reference = Recorder(1), Recorder(2)
    found = routed(engine, reference).encode(["ab", "é", "", "日", "aü"])
    assert documents(found) == [[1, 1], [2], [], [1], [2, 2]]
    assert engine.asked == [["ab", "", "", "日", ""]]
    assert reference.asked == [["é", "aü"]]


def test_the_reference_is_not_loaded_before_it_is_needed() -> None:
    engine = Recorder(1)

    def load_never() -> Reference:
        raise AssertionError("loaded")

    found = RoutedEngine(engine, re.compile("é").search, load_never).encode(["ab", "日"])
    assert documents(found) == [[1, 1], [1]]


@settings(deadline=None)
@given(st.lists(st.text("abé", max_size=5), max_size=8))
def test_routing_keeps_the_order_of_documents(texts: list[str]) -> None:
    found = routed(Recorder(1), Recorder(2)).encode(texts)
    assert documents(found) == [[2 if "é" in text else 1] * len(text) for text in texts]


OVERLAPPING = [added_token("zqxjj", 259, normalized=True), added_token("jjkkq", 260)]


def test_fastokens_alone_differs_on_documents_that_are_routed() -> None:
    pytest.importorskip("fastokens")
    file = as_file(byte_level_json(added_tokens=OVERLAPPING))
    alone = FastokensEngine(file.data, control_tokens=False)
    texts = ["zqxjjkkq"]
    assert documents(load_reference(file, False).encode(texts)) == [[*b"zqx", 260]]
    assert documents(alone.encode(texts)) == [[259, *b"kkq"]]
    assert documents(load(file).encode(texts)) == [[*b"zqx", 260]]


def test_fastokens_has_routes_for_a_long_s_and_for_tokens_that_overlap() -> None:
    assert fastokens_routes(SMALL["ByteLevel"]) == []
    assert fastokens_routes(SMALL["Llama 3's split"]) == ["'\u017f"]
    assert fastokens_routes(byte_level_json(added_tokens=OVERLAPPING)) == ["jjkkq"]

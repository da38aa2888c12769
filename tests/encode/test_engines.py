"""The fast engines against the reference: every document of every text must have the same ids."""

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

from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.engine_ranking import load_engine, rank_engines
from tokenmill.encode.engines.gigatoken import GigatokenEngine, without_special_tokens
from tokenmill.encode.engines.routing import _UNICODE_17, RoutedEngine, gigatoken_routes
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.records import TokenBatch
from tokenmill.words.patterns import LLAMA3_SPLIT

CACHE_BYTES = 1 << 30
FAST = ("fastokens", "gigatoken")

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


def load(name: str, file: TokenizerFile, control_tokens: bool = False) -> Engine:
    pytest.importorskip(name)
    if name not in rank_engines(file, control_tokens).names:
        pytest.skip(f"{name} may not have this tokenizer")
    return load_engine(name, file, control_tokens, CACHE_BYTES)


@pytest.mark.parametrize("control_tokens", [False, True], ids=["text", "control"])
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", SMALL)
def test_an_engine_encodes_small_tokenizers_as_the_reference_does(
    name: str, engine: str, control_tokens: bool
) -> None:
    file = as_file(SMALL[name])
    texts = HAND_MADE + adversarial_texts(["<s>", "</s>"])
    found = load(engine, file, control_tokens).encode(texts)
    compare_tokens(engine, texts, found, load_reference(file, control_tokens).encode(texts))


@pytest.mark.parametrize("engine", FAST)
def test_special_strings_are_text_or_control_tokens_and_plain_added_tokens_are_both(
    engine: str,
) -> None:
    file = as_file(SMALL["ByteLevel"])
    texts = ["abc<s>", "<plain>"]
    as_text = [[258, *b"<s>"], [261]]
    assert documents(load(engine, file).encode(texts)) == as_text
    assert documents(load(engine, file, True).encode(texts)) == [[258, 259], [261]]


@pytest.mark.parametrize("engine", FAST)
def test_an_engine_has_nothing_for_nothing(engine: str) -> None:
    loaded = load(engine, as_file(SMALL["ByteLevel"]))
    assert documents(loaded.encode([])) == []
    assert documents(loaded.encode([""])) == [[]]
    assert documents(loaded.encode(["", "a", ""])) == [[], [97], []]


@pytest.mark.parametrize("engine", FAST)
def test_an_engine_returns_ids_and_offsets_of_the_promised_types(engine: str) -> None:
    found = load(engine, as_file(SMALL["ByteLevel"])).encode(["abc", "a"])
    assert [found.ids.dtype.name, found.offsets.dtype.name] == ["uint32", "int64"]


@pytest.fixture(scope="module")
def small_engines() -> list[tuple[Engine, Reference]]:
    pytest.importorskip("fastokens")
    pytest.importorskip("gigatoken")
    pairs = [("fastokens", "NFC"), ("gigatoken", "Llama 3's split"), ("fastokens", "Llama 2")]
    files = [(engine, as_file(SMALL[name])) for engine, name in pairs]
    return [
        (load_engine(name, file, False, CACHE_BYTES), load_reference(file, False))
        for name, file in files
    ]


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
        self.engines = rank_engines(self.file, False).names
        reference = load_reference(self.file, False)
        special = adversarial_texts(reference.special_tokens)
        # One huge document, since engines cut these up inside.
        self.texts = [*special, "", *SENTENCES, "\n".join(special[::7])]
        self.expected = reference.encode(self.texts)


@pytest.fixture(scope="module", params=NAMES)
def tokenizer(request: pytest.FixtureRequest) -> Trained:
    return Trained(request.param)


@pytest.mark.parametrize("engine", FAST)
def test_an_engine_encodes_trained_tokenizers_as_the_reference_does(
    tokenizer: Trained, engine: str
) -> None:
    pytest.importorskip(engine)
    if engine not in tokenizer.engines:
        pytest.skip(f"{engine} may not have this tokenizer")
    loaded = load_engine(engine, tokenizer.file, False, CACHE_BYTES)
    found = loaded.encode(tokenizer.texts)
    compare_tokens(engine, tokenizer.texts, found, tokenizer.expected)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", ["neox", "dolma2", "llama2"])
def test_an_engine_finds_control_tokens_where_the_reference_finds_them(
    name: str, engine: str
) -> None:
    file = trained(name)
    reference = load_reference(file, True)
    texts = adversarial_texts(reference.special_tokens)[-800:]
    expected = reference.encode(texts)
    assert set(reference.special_tokens.values()) & set(expected.ids.tolist())
    compare_tokens(engine, texts, load(engine, file, True).encode(texts), expected)


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
    return RoutedEngine(engine, re.compile(pattern), lambda: reference)  # type: ignore[arg-type,return-value]


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

    found = RoutedEngine(engine, re.compile("é"), load_never).encode(["ab", "日"])
    assert documents(found) == [[1, 1], [1]]


def test_a_batch_may_be_the_references_whole() -> None:
    found = routed(Recorder(1), Recorder(2)).encode(["é", "éé"])
    assert documents(found) == [[2], [2, 2]]


@settings(deadline=None)
@given(st.lists(st.text("abé", max_size=5), max_size=8))
def test_routing_keeps_the_order_of_documents(texts: list[str]) -> None:
    found = routed(Recorder(1), Recorder(2)).encode(texts)
    assert documents(found) == [[2 if "é" in text else 1] * len(text) for text in texts]


EDGES = [
    chr(point)
    for first, last in _UNICODE_17
    for point in {first - 1, first, (first + last) // 2, last, last + 1}
]
IN_CONTEXT = [f"a{c}b {c}1{c} {c}{c}'s\n{c}\n" for c in EDGES]


def test_gigatoken_is_exact_at_the_edges_of_its_unicode_table_because_of_the_reference() -> None:
    file = as_file(byte_level_json())
    expected = load_reference(file, False).encode(IN_CONTEXT)
    compare_tokens("routed", IN_CONTEXT, load("gigatoken", file).encode(IN_CONTEXT), expected)


def test_gigatoken_alone_differs_at_code_points_that_are_routed() -> None:
    pytest.importorskip("gigatoken")
    file = trained("gpt2")
    texts = ["\ua7d2's", "\U000323b0's"]
    reference = load_reference(file, False)
    alone = GigatokenEngine(file.data, False, CACHE_BYTES)
    assert documents(alone.encode(texts)) != documents(reference.encode(texts))
    engine = load_engine("gigatoken", file, False, CACHE_BYTES)
    assert documents(engine.encode(texts)) == documents(reference.encode(texts))


def test_only_byte_level_tokenizers_have_routes() -> None:
    assert gigatoken_routes(sentencepiece_json()) is None
    routes = gigatoken_routes(byte_level_json())
    assert routes is not None
    assert routes.search("plain text, 日本, 😀") is None
    inside = [chr(c) for first, last in _UNICODE_17 for c in (first, last)]
    assert all(routes.search(f"a{c}b") for c in inside)


def test_gigatoken_is_rebuilt_when_its_cache_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gigatoken")
    monkeypatch.setattr("tokenmill.encode.engines.gigatoken.CHECK_CHARACTERS", 10)
    engine = GigatokenEngine(as_file(byte_level_json()).data, False, cache_bytes=-(1 << 40))
    before = engine._tokenizer
    assert documents(engine.encode(["abc"])) == [[258]]
    assert engine._tokenizer is before
    assert documents(engine.encode(["abc" * 4])) == [[258] * 4]
    assert engine._tokenizer is not before
    assert documents(engine.encode(["abc a"])) == [[258, 256]]


def test_special_tokens_are_taken_out_of_the_json_and_others_stay() -> None:
    import json

    changed = json.loads(without_special_tokens(as_file(SMALL["ByteLevel"]).data))
    assert changed == SMALL["ByteLevel"] | {"added_tokens": [PLAIN]}


def test_a_sentencepiece_model_has_no_equal_in_json() -> None:
    assert KINDS["sentencepiece"].json_of(TokenizerFile("sentencepiece", b"\n"), False) is None

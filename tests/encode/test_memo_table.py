"""The table of chunks: right ids under forgetting, growth, equal hashes and failures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import (
    CACHE_BYTES,
    PUBLISHED,
    WHITESPACE,
    memo_and_reference,
    metaspace,
    pipeline_json,
)
from tokenizer_kit import BYTE_LEVEL, Json, as_file, byte_level_json, documents, sentencepiece_json

from tokenmill.encode.encoder import Encoder
from tokenmill.encode.engines.chunks import table as chunk_table
from tokenmill.encode.engines.chunks.table import MAX_KEPT_BYTES, ChunkTable
from tokenmill.encode.engines.memo import MemoEngine
from tokenmill.errors import EngineError
from tokenmill.records import Int64Array, TokenBatch

BYTES = byte_level_json(pre_tokenizer=BYTE_LEVEL)
EDGES = [
    *(
        "",
        "a",
        " ",
        "  ",
        "a ",
        " a",
        "é",
        "é ",
        "中 ",
        "😀 ",
        " 😀",
        "😀",
        "中",
        "\u0600 a",
        "~ ~",
    ),
    *("a" * size for size in (MAX_KEPT_BYTES - 1, MAX_KEPT_BYTES, MAX_KEPT_BYTES + 1)),
    *("é" * 64, "é" * 64 + " b", "é" * 65, " " * 129, "x " * 200, "a b" * 50 + " "),
]


@pytest.mark.parametrize("tokenizer", [BYTES, pipeline_json(*PUBLISHED["BERT"])])
def test_edges_of_texts_and_of_chunks(tokenizer: Json) -> None:
    memo, reference = memo_and_reference(tokenizer)
    for text in EDGES:
        assert documents(memo.encode([text])) == documents(reference.encode([text]))
    assert documents(memo.encode(EDGES)) == documents(reference.encode(EDGES))


def test_nothing_has_no_ids() -> None:
    memo, _ = memo_and_reference(BYTES)
    assert documents(memo.encode([])) == []
    assert documents(memo.encode([""])) == [[]]
    assert documents(memo.encode(["", "a", ""])) == [[], [97], []]
    found = memo.encode([])
    assert [found.ids.dtype.name, found.offsets.dtype.name] == ["uint32", "int64"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([*EDGES, "a b c", "the end."]), max_size=12), st.data())
def test_any_division_into_batches_gives_the_same_ids(
    texts: list[str], data: st.DataObject
) -> None:
    memo, reference = memo_and_reference(BYTES)
    places = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=4)))
    found: list[list[int]] = []
    for start, stop in zip([0, *places], [*places, len(texts)], strict=True):
        found += documents(memo.encode(texts[start:stop]))
    assert found == documents(reference.encode(texts))


NUMBERS = [" ".join(str(n * step) for n in range(200)) for step in (1, 7, 1, 3)]


def test_a_table_that_is_forgotten_at_every_call_gives_the_same_ids() -> None:
    memo, reference = memo_and_reference(BYTES, cache_bytes=0)
    for _ in range(3):
        assert documents(memo.encode(NUMBERS)) == documents(reference.encode(NUMBERS))


def test_the_table_is_forgotten_when_it_has_outgrown_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunk_table, "MIN_ENTRIES", 4)
    memo, _ = memo_and_reference(BYTES, cache_bytes=1000)
    memo.encode(["a b"])
    assert memo._table.num_bytes < 1000
    memo.encode(NUMBERS)
    grown = memo._table.num_bytes
    assert grown > 1000
    memo.encode(["a b"])
    assert memo._table.num_bytes < 1000


def test_a_table_that_grows_from_almost_nothing_gives_the_same_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunk_table, "MIN_ENTRIES", 1)
    memo, reference = memo_and_reference(BYTES)
    for text in NUMBERS:
        assert documents(memo.encode([text])) == documents(reference.encode([text]))
    assert documents(memo.encode(NUMBERS)) == documents(reference.encode(NUMBERS))


@pytest.mark.parametrize("tag", [0, (1 << 32) - 1])
def test_chunks_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch, tag: int) -> None:
    def equal(data: object, edges: Int64Array, basis: object) -> npt.NDArray[np.uint64]:
        return np.full(len(edges) - 1, tag, np.uint64)

    monkeypatch.setattr(chunk_table, "tags_of", equal)
    monkeypatch.setattr(chunk_table, "MIN_ENTRIES", 2)
    memo, reference = memo_and_reference(BYTES)
    for _ in range(2):
        assert documents(memo.encode(NUMBERS)) == documents(reference.encode(NUMBERS))


class Recorder:
    """Gives every character of a text an id of its own, and remembers what it was asked."""

    name = "recorder"
    version = "1"

    def __init__(self, poison: str = "") -> None:
        self.asked: list[str] = []
        self.poison = poison

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        if self.poison and any(self.poison in text for text in texts):
            raise RuntimeError(self.poison)
        self.asked += texts
        ids = [ord(character) for text in texts for character in text]
        offsets = np.cumsum([0, *map(len, texts)])
        return TokenBatch(np.array(ids, np.uint32), offsets.astype(np.int64))


def recorded(poison: str = "") -> tuple[MemoEngine, Recorder]:
    recorder = Recorder(poison)
    data = as_file(pipeline_json(None, WHITESPACE)).data
    return MemoEngine(recorder, data, False, CACHE_BYTES), recorder  # type: ignore[arg-type]


def test_the_reference_is_asked_once_for_every_chunk() -> None:
    memo, recorder = recorded()
    memo.encode(["to be or not to be", "to be"])
    assert recorder.asked == ["to", " be", " or", " not", " to"]
    memo.encode(["or not to be"])
    assert recorder.asked[5:] == ["or"]


def test_long_chunks_are_asked_for_every_time() -> None:
    memo, recorder = recorded()
    long = "é" * (MAX_KEPT_BYTES // 2) + "é"
    for _ in range(2):
        assert documents(memo.encode([f"a {long}"])) == [[97, 32, *[0xE9] * len(long)]]
    assert recorder.asked == ["a", f" {long}", f" {long}"]


@pytest.mark.parametrize("poison", ["bad", "b" * (MAX_KEPT_BYTES + 1)], ids=["short", "long"])
def test_after_a_failure_the_next_call_is_right(poison: str) -> None:
    memo, recorder = recorded(poison)
    memo.encode(["good"])
    with pytest.raises(RuntimeError):
        memo.encode(["good new " + poison, "other"])
    with pytest.raises(EngineError, match="memo failed on a batch of 1 documents"):
        Encoder(memo, 1 << 20).encode([poison])
    expected = [list(map(ord, text)) for text in ("other new", "new")]
    assert documents(memo.encode(["other new", "new"])) == expected
    recorder.poison = ""
    assert documents(memo.encode([poison])) == [list(map(ord, poison))]


def test_a_table_learns_and_gathers_ids_of_documents() -> None:
    memo, _ = recorded()
    table: ChunkTable = memo._table
    found = table.find(np.frombuffer(b"a bb a", np.uint8), np.array([0, 4, 6]))
    assert found.numbers.tolist() == [0, 1, 2]
    assert found.chunks_before.tolist() == [0, 2, 3]
    assert found.new.tolist() == [[0, 1], [1, 4], [4, 6]]
    table.learn(TokenBatch(np.array([7, 8, 8, 9], np.uint32), np.array([0, 1, 3, 4])))
    gathered = table.gather(found, TokenBatch(np.empty(0, np.uint32), np.zeros(1, np.int64)))
    assert documents(gathered) == [[7, 8, 8], [9]]


def test_metaspace_at_the_start_of_a_text_only() -> None:
    tokenizer = sentencepiece_json(normalizer=None, pre_tokenizer=metaspace("first"))
    memo, reference = memo_and_reference(tokenizer)
    texts = ["a a", " a a", "a  a ", "<s>a a"]
    assert documents(memo.encode(texts)) == documents(reference.encode(texts))

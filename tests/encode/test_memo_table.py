"""The table of chunks: right ids under forgetting, growth, equal hashes and failures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import (
    CACHE_BYTES,
    PUBLISHED,
    WHITESPACE,
    memo_and_reference,
    pipeline_json,
)
from tokenizer_kit import BYTE_LEVEL, Json, as_file, byte_level_json, documents

from tokenmill.core.errors import EngineError
from tokenmill.core.records import Int64Array, TokenBatch, UInt8Array
from tokenmill.encode.boundaries import batch_of
from tokenmill.encode.engine import Encoder
from tokenmill.encode.engines import chunks as chunk_table
from tokenmill.encode.engines.chunks import ChunkEngine, MemoEngine
from tokenmill.encode.engines.cuts import make_cuts
from tokenmill.kernels.chunks import BLOCK_ROOM, MAX_KEPT_BYTES, MAX_KEPT_IDS

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


def test_the_table_is_forgotten_before_it_outgrows_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunk_table, "MIN_SLOTS", 1 << 10)
    memo, _ = memo_and_reference(BYTES, cache_bytes=100_000)
    sizes = []
    for number in range(0, 4000, 20):
        memo.encode([" ".join(map(str, range(number, number + 20)))])
        sizes.append(memo._table.num_bytes)
    assert max(sizes) <= 100_000
    assert [a > b for a, b in pairwise(sizes)].count(True) > 1


def test_a_table_that_grows_from_almost_nothing_gives_the_same_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunk_table, "MIN_SLOTS", 1 << 10)
    memo, reference = memo_and_reference(BYTES)
    for text in NUMBERS:
        assert documents(memo.encode([text])) == documents(reference.encode([text]))
    assert documents(memo.encode(NUMBERS)) == documents(reference.encode(NUMBERS))


@pytest.mark.parametrize("high", [0, 2, 4])
def test_chunks_with_equal_hashes_are_told_apart(high: int) -> None:
    """These secrets make 0 the hash of chunks of more than 16 bytes, or of short ones of one size.

    They would have to be guessed.
    """
    memo, reference = memo_and_reference(BYTES)
    memo._table._secrets = (np.uint64(0), np.uint64(high))
    memo._table.forget()
    texts = [*NUMBERS, " ".join(f"{n:020}" for n in range(50))]
    for _ in range(2):
        assert documents(memo.encode(texts)) == documents(reference.encode(texts))


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


class Repeats(ChunkEngine):
    """A chunk that is a number has so many ids, all different."""

    def _encode_chunks(self, data: UInt8Array, places: Int64Array) -> TokenBatch:
        counts = [int(data[start:stop].tobytes()) for start, stop in places]
        return batch_of([range(count) for count in counts])


NUMBER_EDGES = [0, 1, 2, 3, 4, 5, 17, MAX_KEPT_IDS - 1, MAX_KEPT_IDS, MAX_KEPT_IDS + 1]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 23, 24, 25, MAX_KEPT_BYTES])
def test_chunks_of_any_length_have_any_number_of_ids(length: int) -> None:
    cuts = make_cuts(pipeline_json(None, WHITESPACE), False)
    engine = Repeats("repeats", "1", cuts, CACHE_BYTES)
    numbers = [number for number in NUMBER_EDGES if len(str(number)) <= length]
    texts = [str(number).zfill(length) for number in numbers]
    expected = [list(range(number)) for number in numbers]
    for _ in range(3):
        assert documents(engine.encode(texts)) == expected


def test_a_batch_has_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASKED_A_ROUND", "PENDING_A_ROUND"):
        monkeypatch.setattr(chunk_table, name, BLOCK_ROOM)
    monkeypatch.setattr(chunk_table, "IDS_A_ROUND", BLOCK_ROOM * MAX_KEPT_IDS)
    memo, reference = memo_and_reference(BYTES)
    texts = ["", *NUMBERS, "", "a b a b", "1 " * 5000]
    for _ in range(2):
        assert documents(memo.encode(texts)) == documents(reference.encode(texts))

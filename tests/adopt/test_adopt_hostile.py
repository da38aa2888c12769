"""Indexes that lie: every file is read as an independent reader does, or refused as damaged."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adopt_kit import Documents, index_bytes, write_pair
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.core.errors import DamagedInputError, InputChangedError, UserError
from tokenmill.read.places.local import local_source
from tokenmill.read.source import Source
from tokenmill.read.tokens import indexes, pieces
from tokenmill.read.tokens.files import list_token_files, open_token_file
from tokenmill.read.tokens.indexes import megatron_file
from tokenmill.read.tokens.options import AdoptOptions
from tokenmill.read.tokens.pieces import TokenFile

U2 = np.dtype("<u2")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_TOKENS", 3)
    monkeypatch.setattr(indexes, "AT_ONCE", 2)


def documents_in(file: TokenFile, most: int = 3) -> list[tuple[int, list[int]]]:
    """The position and ids of each document, put together from pieces; empty ones are left out."""
    found, held = [], []
    for ids, ends, positions in file.pieces():
        assert len(ids) <= most
        done = 0
        for end, position in zip(ends.tolist(), positions.tolist(), strict=True):
            found.append((position, [*held, *ids[done:end].tolist()]))
            held, done = [], end
        held += ids[done:].tolist()
    assert held == []
    return [(position, document) for position, document in found if document]


def num_documents(file: TokenFile) -> int:
    return sum(len(ends) for _, ends, _ in file.pieces())


def pair_at(path: Path) -> TokenFile:
    return megatron_file(local_source("a.bin", path, path.stat()))


def opened(source: Source, **options: Any) -> TokenFile:
    return open_token_file(source, AdoptOptions(**options), eos_id=0, largest_id=9)


def as_megatron_reads(
    ids: Sequence[int], lengths: Sequence[int], places: Sequence[int], bounds: Sequence[int]
) -> list[tuple[int, list[int]]] | None:
    """The documents of an index, sequence by sequence; None if it contradicts itself."""
    if bounds[:1] != [0] or bounds[-1] != len(lengths) or sorted(bounds) != bounds:
        return None
    sequences = []
    for length, place in zip(lengths, places, strict=True):
        if length < 0 or place < 0 or place % 2 or place + 2 * length > 2 * len(ids):
            return None
        sequences.append((place, list(ids[place // 2 : place // 2 + length])))
    found = []
    for first, last in itertools.pairwise(bounds):
        filled = [each for each in sequences[first:last] if each[1]]
        if filled:
            found.append((filled[0][0], [token for _, part in filled for token in part]))
    return found


SEQUENCES = st.lists(
    st.tuples(st.integers(-1, 9), st.integers(-1, 20).map(lambda n: n * 2 if n % 5 else n)),
    max_size=7,
)


@settings(deadline=None, max_examples=400)
@given(sequences=SEQUENCES, bounds=st.lists(st.integers(0, 7), max_size=5), honest=st.booleans())
@example(sequences=[(2**31 - 1, 0)], bounds=[1], honest=False)
@example(sequences=[(3, 2**62)], bounds=[1], honest=False)
@example(sequences=[(3, -(2**63))], bounds=[1], honest=False)
def test_a_pair_is_read_as_its_index_says_or_refused(
    sequences: list[tuple[int, int]],
    bounds: list[int],
    honest: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    ids = list(range(1, 13))
    if honest:  # random numbers seldom agree
        sequences = [(min(max(n, 0), 4), abs(place) % 8 * 2) for n, place in sequences]
        bounds = [*sorted(min(bound, len(sequences)) for bound in bounds), len(sequences)]
    bounds = [0, *bounds]
    lengths, places = [n for n, _ in sequences], [place for _, place in sequences]
    path = tmp_path_factory.mktemp("pair") / "a.bin"
    np.array(ids, U2).tofile(path)
    path.with_suffix(".idx").write_bytes(index_bytes(lengths, places, bounds))
    expected = as_megatron_reads(ids, lengths, places, bounds)
    if expected is None:
        with pytest.raises(DamagedInputError):
            pair_at(path)
    else:
        pair = pair_at(path)
        assert documents_in(pair) == expected
        assert pair.num_tokens == sum(lengths)
        assert num_documents(pair) == len(bounds) - 1
        in_order = [token for _, document in expected for token in document]
        assert pair.plain_dtype == (U2 if in_order == ids else None)


@settings(deadline=None, max_examples=300)
@given(ids=st.lists(st.integers(0, 4), max_size=20), itemsize=st.sampled_from(["<u2", "<u4"]))
def test_documents_end_after_each_eos(
    ids: list[int], itemsize: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("flat") / "a.bin"
    ids = [9, 9, *ids, 9]  # the second id shows that ids have no more bytes
    np.array(ids, itemsize).tofile(path)
    (source,) = list_token_files([str(path)])
    file = opened(source, dtype="uint16" if itemsize == "<u2" else "uint32")
    documents: list[list[int]] = [[]]
    for token in ids:
        documents[-1].append(token)
        if token == 0:
            documents.append([])
    starts = np.cumsum([0, *map(len, documents[:-1])]) * np.dtype(itemsize).itemsize
    assert documents_in(file) == list(zip(starts.tolist(), documents, strict=True))


@settings(deadline=None, max_examples=300)
@given(ends=st.lists(st.integers(0, 11), max_size=6), honest=st.booleans())
@example(ends=[2**64 - 1], honest=False)
@example(ends=[2**63, 10], honest=False)
def test_an_index_of_datatrove_is_followed_or_refused(
    ends: list[int], honest: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ids = list(range(1, 11))
    ends = [*sorted(min(end, 10) for end in ends), 10] if honest else ends
    path = tmp_path_factory.mktemp("ds") / "a.ds"
    np.array(ids, U2).tofile(path)
    path.with_suffix(".ds.index").write_bytes(struct.pack(f"<{len(ends)}Q", *ends))
    (source,) = list_token_files([str(path)])
    if sorted(ends) != ends or ends[-1:] != [10]:
        with pytest.raises(DamagedInputError):
            opened(source)
        return
    file = opened(source)
    assert num_documents(file) == len(ends)
    pairs = zip([0, *ends], ends, strict=False)
    expected = [(2 * start, ids[start:end]) for start, end in pairs if end > start]
    assert documents_in(file) == expected


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=8))
def test_rows_are_documents_or_a_stream(
    rows: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.parquet"
    pq.write_table(
        pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32()))}), path, row_group_size=2
    )
    (source,) = list_token_files([str(path)])
    file = opened(source)
    assert documents_in(file, 40) == [(row, ids) for row, ids in enumerate(rows) if ids]
    by_eos = opened(source, boundaries="eos")
    expected: list[tuple[int, list[int]]] = []
    ended = True
    for row, ids in enumerate(rows):
        for token in ids:
            if ended:
                expected.append((row, []))
            expected[-1][1].append(token)
            ended = token == 0
    assert documents_in(by_eos, 40) == expected


def broken(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to three accidents."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 2:
                data = data[:at] + chance.randbytes(8) + data[at + 8 :]
            case _:
                data = data[:at] + chance.randbytes(chance.randint(1, 9)) + data[at:]
    return data


DOCUMENTS: Documents = [[7, 8, 9, 0], [1, 0], [2, 3, 0]]


def test_broken_indexes_are_read_or_refused(tmp_path: Path) -> None:
    """What is still read names only ids of the file."""
    chance = random.Random(0)
    outcomes = {"read": 0, "refused": 0}
    path = write_pair(tmp_path / "a", DOCUMENTS)
    index = path.with_suffix(".idx")
    whole = index.read_bytes()
    for _ in range(2_000):
        index.write_bytes(broken(whole, chance))
        try:
            found = documents_in(pair_at(path))
        except (DamagedInputError, UserError):
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
            assert {token for _, document in found for token in document} <= set(range(256 * 256))
    assert outcomes["refused"] > 1_500
    assert outcomes["read"] > 0


def test_headers_that_promise_more_than_the_file_are_refused(tmp_path: Path) -> None:
    path = write_pair(tmp_path / "a", DOCUMENTS)
    lengths, places, bounds = [4, 2, 3], [0, 8, 12], [0, 1, 2, 3]
    index = path.with_suffix(".idx")
    for num_sequences, num_bounds in [(2**64 - 1, 4), (2**60, 2**60), (0, 0), (3, 2**63), (4, 4)]:
        counts = {"num_sequences": num_sequences, "num_bounds": num_bounds}
        index.write_bytes(index_bytes(lengths, places, bounds, **counts))
        with pytest.raises(DamagedInputError, match="do not fit its 102 bytes"):
            pair_at(path)
    for code in (0, 6, 7, 9, 255):
        index.write_bytes(index_bytes(lengths, places, bounds, code))
        with pytest.raises(DamagedInputError, match=f"its dtype code is {code}"):
            pair_at(path)
    index.write_bytes(b"MMIDIDX")
    with pytest.raises(DamagedInputError, match="it has 7 bytes"):
        pair_at(path)


def test_a_small_index_cannot_fill_the_memory(tmp_path: Path) -> None:
    """A document that repeats a sequence a million times comes in small pieces."""
    path = write_pair(tmp_path / "a", [[1, 2, 3]])
    count = 1_000
    data = index_bytes([3] * count, [0] * count, [0, count])
    path.with_suffix(".idx").write_bytes(data)
    sizes = [len(ids) for ids, _, _ in pair_at(path).pieces()]
    assert sum(sizes) == 3 * count
    assert max(sizes) == 3


def test_nulls_and_other_types_are_refused(tmp_path: Path) -> None:
    for name, values, error in [
        ("nulls", pa.array([[1, None]]), DamagedInputError),
        ("texts", pa.array(["a"]), UserError),
        ("floats", pa.array([[1.5]]), UserError),
    ]:
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"input_ids": values}), path)
        (source,) = list_token_files([str(path)])
        with pytest.raises(error):
            documents_in(opened(source))
    with pytest.raises(UserError, match="cannot find the column 'ids'"):
        opened(source, column="ids")


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"input_ids": [[1, 0]] * 1_000}), path)
    whole = bytearray(path.read_bytes())
    path.write_bytes(whole[:-100])
    (source,) = list_token_files([str(path)])
    with pytest.raises(DamagedInputError):
        opened(source)


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    import tokenmill
    from load.loading_kit import write_tokenizer

    pair = write_pair(tmp_path / "text", DOCUMENTS)
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")

    def change(stage: str, done: int, total: int) -> None:
        with open(pair, "r+b") as file:
            file.write(b"\x05\x00")

    with pytest.raises(InputChangedError, match="an input changed during the build"):
        tokenmill.adopt(pair, tokenizer, tmp_path / "out", eos="<eos>", advance=change)
    assert not (tmp_path / "out" / "manifest.json").exists()

"""The one reader: extents in, document batches out, errors that name the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import records_kit
from records_kit import read_as_stream, source_of
from tokenmill.core.errors import InputChangedError, StorageError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.per_input import PerInput
from tokenmill.read.source import Source
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Unit, cut_units

TEXTS = ["eins", "zwei\n", "", "drei 😀", "vier" * 20, "fünf"]
LINES = [json.dumps({"text": text}).encode() + b"\n" for text in TEXTS]


def put(path: Path, data: bytes, file_format: str = "auto") -> Source:
    path.write_bytes(data)
    return find_sources([str(path)], PerInput(file_format))[0]


def read(source: Source, fields: Fields, extents: list[Extent], batch_bytes: int) -> list[str]:
    reader = Reader([source], fields, batch_bytes)
    return [text for extent in extents for batch in reader.read(extent) for text in batch.texts]


@pytest.mark.parametrize("batch_bytes", [1, 30, 10_000])
@pytest.mark.parametrize("unit_bytes", [1, 7, 50])
def test_units_of_any_size_give_every_document_once(
    unit_bytes: int, batch_bytes: int, tmp_path: Path
) -> None:
    lines = put(tmp_path / "a.jsonl", b"".join(LINES))
    extents = [
        extent
        for unit in cut_units([lines], Fields(), unit_bytes)
        if isinstance(unit, Unit)
        for extent in unit.extents
    ]
    assert read(lines, Fields(), extents, batch_bytes) == TEXTS


@pytest.mark.parametrize("separator", ["|", "=|", "–"])
def test_text_with_separators_is_cut_like_lines(separator: str, tmp_path: Path) -> None:
    source = put(tmp_path / "a.txt", separator.join(TEXTS).encode())
    fields = Fields(separator=separator)
    for cut in range(source.num_bytes + 1):
        extents = [Extent(0, 0, cut), Extent(0, cut, source.num_bytes)]
        assert read(source, fields, [e for e in extents if e.start != e.stop], 20) == TEXTS


def test_what_is_read_is_observed_byte_for_byte(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + b"".join(LINES) + b"\n\nbroken\n"
    source = put(tmp_path / "a.jsonl", data)
    reader, seen = Reader([source], Fields(), 30), []
    reader.observe = lambda index, block: seen.append((index, bytes(block)))
    list(reader.read(Extent(0)))
    assert b"".join(block for _, block in seen) == data
    assert {index for index, _ in seen} == {0}


def test_a_file_that_vanished_is_a_storage_error_that_names_it(tmp_path: Path) -> None:
    source = put(tmp_path / "a.jsonl", b"".join(LINES))
    source.path.unlink()
    with pytest.raises(StorageError, match="cannot read an input file") as caught:
        list(Reader([source], Fields(), 100).read(Extent(0)))
    assert caught.value.where == str(source.path)


def test_a_file_that_changes_before_or_while_it_is_read_is_refused(tmp_path: Path) -> None:
    source = put(tmp_path / "a.jsonl", b"".join(LINES))
    batches = Reader([source], Fields(), 10).read(Extent(0))
    next(batches)
    os.utime(source.path, ns=(1, 1))
    with pytest.raises(InputChangedError):
        list(batches)
    with pytest.raises(InputChangedError):
        next(Reader([source], Fields(), 10).read(Extent(0)))


X = b"x" * 2000
WEB_PAGE = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n"
LONG_RECORDS = {
    "jsonl": (b'{"text": "a"}\n{"text": "%s"}\n{"text": "b"}\n' % X, 14),
    "json-array": (b'[\n{"text": "a"},\n{"text": "%s"},\n{"text": "b"}\n]' % X, 17),
    "csv": (b"text\r\na\r\n%s\r\nb\r\n" % X, 9),
    "tsv": (b'text\na\n"%s"\nb' % X, 7),
    "wet": (b"".join(WEB_PAGE % (len(text), text) for text in (b"a", X, b"b")), 59),
    "text": (b"a|.|%s|.|b|.|" % X, 4),
}


@pytest.mark.parametrize("batch_bytes", [1, 200, 10_000])
@pytest.mark.parametrize("file_format", LONG_RECORDS)
def test_a_record_longer_than_the_limit_is_rejected_where_it_starts(
    file_format: str, batch_bytes: int, tmp_path: Path
) -> None:
    content, place = LONG_RECORDS[file_format]
    source = source_of(tmp_path / "data", content, file_format)
    fields = Fields(separator="|.|", max_record=1000)
    found = records_kit.read(source, fields, batch_bytes)
    assert found.texts == ["a", "b"]
    ((position, reason, record),) = found.rejected
    assert (position, reason) == (place, "too-long")
    assert content[place:].startswith(record)
    assert found.details == ["longer than 1,000 bytes, the limit of --max-record"]
    assert (found.num_bytes, found.digested) == (len(content), content)
    assert found == records_kit.read(source, fields)
    assert found == read_as_stream(source, tmp_path, 1, batch_bytes, fields)


@pytest.mark.parametrize("size", [999, 1000, 1001, 1002, 1003, 1004, 2000])
def test_a_file_that_is_one_document_has_the_same_limit(size: int, tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.txt", b"x" * size)
    found = records_kit.read(source, Fields(max_record=1000), batch_bytes=100)
    assert len(found.texts) == (size <= 1000)
    assert len(found.rejected) == (size > 1000)
    assert found.num_bytes == size


lines = st.sampled_from([0, 5, 18, 19, 20, 21, 22, 23, 60])


@given(sizes=st.lists(lines), batch_bytes=st.integers(1, 64), unit_bytes=st.integers(1, 64))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_limit_is_the_same_in_all_blocks_parts_and_ranges(
    sizes: list[int], batch_bytes: int, unit_bytes: int, tmp_path: Path
) -> None:
    content = b"".join(b"x" * size + b"\n" for size in sizes)
    source = source_of(tmp_path / "a.txt", content)
    fields = Fields(separator="\n", max_record=20)
    found = records_kit.read(source, fields, batch_bytes)
    assert found.texts == ["x" * size for size in sizes if size < 20]
    assert len(found.rejected) == sum(size >= 20 for size in sizes)
    assert found.digested == content
    assert found == records_kit.read(source, fields)
    assert found == read_as_stream(source, tmp_path, unit_bytes, batch_bytes, fields)
    extents = [unit.extents[0] for unit in cut_units([source], fields, unit_bytes)]
    assert read(source, fields, extents, batch_bytes) == found.texts

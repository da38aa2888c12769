"""The one reader: extents in, document batches out, errors that name the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tokenmill.errors import InputChangedError, StorageError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.sources import Source, find_sources
from tokenmill.read.units import Extent, Unit, cut_units

TEXTS = ["eins", "zwei\n", "", "drei 😀", "vier" * 20, "fünf"]
LINES = [json.dumps({"text": text}).encode() + b"\n" for text in TEXTS]


def put(path: Path, data: bytes, file_format: str = "auto") -> Source:
    path.write_bytes(data)
    return find_sources([str(path)], file_format)[0]


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

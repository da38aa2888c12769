"""A stream is read once and cut at records; its spool files hold exactly its bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.core.errors import DamagedInputError
from tokenmill.read import units
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.source import Source
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Stream, Unit, feed_stream

LINES = [b'{"text": "%s %d"}\n' % (b"x" * (number % 7), number) for number in range(200)]

TEXT = Fields()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "PIECE_BYTES", 64)


def put(path: Path, data: bytes) -> Source:
    path.write_bytes(data)
    return find_sources([str(path)])[0]


def fed(
    source: Source, folder: Path, unit_bytes: int, fields: Fields = TEXT, skip: int = 0
) -> list[tuple[Unit, Path | None]]:
    """All units; every `skip`th is not wanted."""
    seen: list[str] = []

    def wanted(key: str) -> bool:
        seen.append(key)
        return not skip or len(seen) % skip != 0

    folder.mkdir(exist_ok=True)
    return list(feed_stream(Stream(source.index, unit_bytes), source, fields, folder, wanted))


def documents(source: Source, units: list[tuple[Unit, Path | None]]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    reader = Reader([source], Fields(), 100)
    for unit, spool in units:
        (extent,) = unit.extents
        for batch in reader.read(extent, spool):
            found += zip(batch.positions.tolist(), batch.texts, strict=True)
    return found


def whole(source: Source) -> list[tuple[int, str]]:
    return documents(source, [(Unit("whole", (Extent(0),), 0), None)])


def test_spools_hold_exactly_the_bytes_cut_at_records(tmp_path: Path) -> None:
    data = b"".join(LINES)
    source = put(tmp_path / "a.jsonl.gz", gzip.compress(data))
    units = fed(source, tmp_path / "spool", 300)
    spooled = [spool.read_bytes() for _, spool in units if spool]
    assert b"".join(spooled) == data
    assert all(300 <= len(piece) < 300 + 2 * 64 for piece in spooled[:-1])
    assert all(piece.endswith(b"\n") for piece in spooled)
    at = 0
    for part, ((unit, spool), piece) in enumerate(zip(units, spooled, strict=True)):
        assert unit.key == f"00000000-{part:06d}"
        assert unit.extents == (Extent(0, at, at + len(piece)),)
        assert spool is not None
        at += len(piece)
    assert sum(unit.num_bytes for unit, _ in units) == source.num_bytes


def test_documents_of_the_spools_are_those_of_the_file(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + b"".join(LINES) + b"\n{broken\n" + LINES[0].rstrip()
    source = put(tmp_path / "a.jsonl.gz", gzip.compress(data))
    assert documents(source, fed(source, tmp_path / "spool", 300)) == whole(source)


@pytest.mark.parametrize("skip", [1, 2, 3])
def test_units_are_the_same_where_only_some_are_wanted(skip: int, tmp_path: Path) -> None:
    source = put(tmp_path / "a.jsonl.gz", gzip.compress(b"".join(LINES)))
    everything = fed(source, tmp_path / "all", 300)
    some = fed(source, tmp_path / "some", 300, skip=skip)
    assert [unit for unit, _ in some] == [unit for unit, _ in everything]
    for part, ((_, spool), (_, other)) in enumerate(zip(everything, some, strict=True), start=1):
        assert spool is not None
        assert (other is None) == (part % skip == 0)
        if other:
            assert other.read_bytes() == spool.read_bytes()


def test_units_do_not_depend_on_how_the_data_was_compressed(tmp_path: Path) -> None:
    data = b"".join(LINES)
    members = b"".join(gzip.compress(data[at : at + 17]) for at in range(0, len(data), 17))
    one = fed(put(tmp_path / "1.jsonl.gz", gzip.compress(data)), tmp_path / "one", 300)
    many = fed(put(tmp_path / "2.jsonl.gz", members), tmp_path / "many", 300)
    assert [unit.extents for unit, _ in one] == [unit.extents for unit, _ in many]


def test_a_separator_that_overlaps_itself_is_found_from_the_left(tmp_path: Path) -> None:
    data = b"".join(b"%d%s" % (number, b"\n" * (2 + number % 4)) for number in range(300))
    source = put(tmp_path / "a.txt", data)
    fields = Fields(separator="\n\n")
    expected = data.decode().split("\n\n")
    if not expected[-1]:
        expected.pop()
    for unit_bytes in (100, 300, 10_000):
        found: list[str] = []
        for unit, spool in fed(source, tmp_path / "spool", unit_bytes, fields):
            for batch in Reader([source], fields, 50).read(unit.extents[0], spool):
                found += batch.texts
        assert found == expected


@pytest.mark.parametrize("kind", ["parquet", "arrow-stream"])
def test_rows_are_spooled_as_arrow_and_keep_their_places(kind: str, tmp_path: Path) -> None:
    table = pa.table({"text": [f"document {number}" for number in range(100)]})
    path = tmp_path / "file"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=60)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=60)
    (source,) = find_sources([str(path)])
    units = fed(source, tmp_path / "spool", 300)
    assert len(units) > 3
    assert documents(source, units) == whole(source)
    edges = [(unit.extents[0].start, unit.extents[0].stop) for unit, _ in units]
    assert [start for start, _ in edges] == [0, *(stop for _, stop in edges[:-1])]
    assert edges[-1][1] == 100


def test_damage_is_reported_after_the_units_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "PIECE_BYTES", 1 << 16)  # decompressors read ahead, so much data
    lines = LINES * 400
    data = gzip.compress(b"".join(lines), 1) + gzip.compress(b"".join(LINES))[:-9]
    source = put(tmp_path / "a.jsonl.gz", data)
    (tmp_path / "spool").mkdir()
    fed: list[tuple[Unit, Path | None]] = []
    with pytest.raises(DamagedInputError, match=r"a\.jsonl\.gz"):
        fed.extend(feed_stream(Stream(0, 100_000), source, Fields(), tmp_path / "spool", bool))
    found = documents(source, fed)
    assert len(found) > 10_000
    assert [text for _, text in found] == [line.decode()[10:-3] for line in lines[: len(found)]]

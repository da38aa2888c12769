"""Units are a pure function of the sources, and cover every byte of them once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.source import Source
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Stream, Unit, choose_unit_bytes, count_units, cut_units, unit_key

MIB = 1 << 20


def source(
    index: int, num_bytes: int, file_format: str = "jsonl", compression: str = "none"
) -> Source:
    """A source that is never opened."""
    name = f"{index}"
    return Source(
        index=index, name=name, place="local", location=name, version=0, num_bytes=num_bytes,
        format=file_format, compression=compression, path=Path(name),
    )  # fmt: skip


def sources_of(*sizes: int) -> list[Source]:
    return [source(index, size) for index, size in enumerate(sizes)]


def table_source(path: Path, kind: str, row_bytes: list[int]) -> Source:
    """A file with one row group or record batch for each row."""
    table = pa.table({"text": ["x" * size for size in row_bytes]})
    if kind == "parquet":
        pq.write_table(
            table, path, row_group_size=1, compression="none", use_dictionary=False,
            write_statistics=False,
        )  # fmt: skip
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=1)
    return find_sources([str(path)])[0]


def test_empty_files_stay_before_a_file_of_exactly_one_unit() -> None:
    assert list(cut_units(sources_of(0, 100), Fields(), 100)) == [
        Unit("00000000-000000", (Extent(0),), 0),
        Unit("00000001-000000", (Extent(1, 0, 100),), 100),
    ]


def test_a_large_file_is_cut_into_byte_ranges() -> None:
    assert list(cut_units(sources_of(250), Fields(), 100)) == [
        Unit("00000000-000000", (Extent(0, 0, 100),), 100),
        Unit("00000000-000001", (Extent(0, 100, 200),), 100),
        Unit("00000000-000002", (Extent(0, 200, 250),), 50),
    ]


def test_small_files_are_grouped_and_keep_their_order() -> None:
    assert list(cut_units(sources_of(40, 50, 20, 0, 100, 99), Fields(), 100)) == [
        Unit("00000000-000000", (Extent(0), Extent(1)), 90),
        Unit("00000002-000000", (Extent(2), Extent(3)), 20),
        Unit("00000004-000000", (Extent(4, 0, 100),), 100),
        Unit("00000005-000000", (Extent(5),), 99),
    ]


@pytest.mark.parametrize(
    ("large", "fields"),
    [
        (source(0, 100, compression="gzip"), Fields()),
        (source(0, 100, compression="xz"), Fields()),
        (source(0, 100, "text", "zstd"), Fields(separator="--|")),
        (source(0, 100, "text"), Fields(separator="\n\n")),
        (source(0, 100, "arrow-stream"), Fields()),
    ],
)
def test_what_can_only_be_read_in_sequence_is_a_stream(large: Source, fields: Fields) -> None:
    assert list(cut_units([large], fields, 100)) == [Stream(0, 100)]


def test_plain_text_is_cut_only_where_it_has_separators() -> None:
    text = source(0, 250, "text")
    assert len(list(cut_units([text], Fields(separator="\n"), 100))) == 3
    assert list(cut_units([text], Fields(), 100)) == [Unit("00000000-000000", (Extent(0),), 250)]


def test_small_compressed_files_are_whole_units() -> None:
    sources = [source(index, 20, compression="gzip") for index in range(3)]
    (first, second) = cut_units(sources, Fields(), 200)
    assert isinstance(first, Unit)
    assert isinstance(second, Unit)
    assert [first.extents, second.extents] == [(Extent(0), Extent(1)), (Extent(2),)]


def test_units_are_counted_without_opening_a_file() -> None:
    assert count_units(sources_of(40, 50, 20, 250), Fields(), 100) == 5
    small_table = source(0, 99, "parquet")
    assert count_units([small_table], Fields(), 100) == 1
    assert count_units([source(0, 100, "parquet")], Fields(), 100) is None
    assert count_units([source(0, 100, compression="gzip")], Fields(), 100) is None


sizes = st.lists(st.integers(0, 500), max_size=20)


@given(sizes, st.sampled_from(["none", "gzip"]), st.integers(1, 200))
@settings(deadline=None)
def test_every_byte_of_every_source_is_in_one_unit(
    sizes: list[int], compression: str, unit_bytes: int
) -> None:
    sources = [
        source(index, size, compression=compression if index % 2 else "none")
        for index, size in enumerate(sizes)
    ]
    items = list(cut_units(sources, Fields(), unit_bytes))
    assert items == list(cut_units(sources, Fields(), unit_bytes))
    covered: dict[int, list[tuple[int, int]]] = {}
    for item in items:
        extents = item.extents if isinstance(item, Unit) else (Extent(item.source),)
        for extent in extents:
            stop = sizes[extent.source] if extent.stop is None else extent.stop
            covered.setdefault(extent.source, []).append((extent.start, stop))
    assert list(covered) == list(range(len(sizes)))
    for index, size in enumerate(sizes):
        starts, stops = zip(*covered[index], strict=True)
        assert (*starts, size) == (0, *stops)


@given(sizes, st.integers(1, 200))
@settings(deadline=None)
def test_keys_are_unique_and_sort_in_the_order_of_the_inputs(
    sizes: list[int], unit_bytes: int
) -> None:
    items = cut_units(sources_of(*sizes), Fields(), unit_bytes)
    keys = [item.key for item in items if isinstance(item, Unit)]
    assert keys == sorted(set(keys))
    assert unit_key(12, 345) == "00000012-000345"


@pytest.mark.parametrize(
    ("total", "unit_mib"),
    [(0, 32), (128 << 30, 32), ((128 << 30) + 1, 64), (1 << 40, 256), (9 << 40, 512)],
)
def test_units_grow_with_the_corpus_from_32_to_512_mib(total: int, unit_mib: int) -> None:
    assert choose_unit_bytes([source(0, total)]) == unit_mib * MIB
    halves = [source(0, total // 2), source(1, total - total // 2)]
    assert choose_unit_bytes(halves) == unit_mib * MIB


@pytest.mark.parametrize("kind", ["parquet", "arrow-file"])
def test_row_groups_are_put_together_up_to_the_size_of_a_unit(kind: str, tmp_path: Path) -> None:
    table = table_source(tmp_path / "file", kind, [4000, 4000, 4000, 9000, 1000, 1000])
    items = list(cut_units([table], Fields(), 10_000))
    extents = [extent for item in items if isinstance(item, Unit) for extent in item.extents]
    rows = [Extent(0, 0, 2, 0), Extent(0, 2, 3, 2), Extent(0, 3, 4, 3), Extent(0, 4, 6, 4)]
    assert extents == rows


@pytest.mark.parametrize("kind", ["parquet", "arrow-file"])
def test_a_huge_row_group_makes_its_file_a_stream(kind: str, tmp_path: Path) -> None:
    table = table_source(tmp_path / "file", kind, [10, 3000, 10])
    assert list(cut_units([table], Fields(), 1000)) == [Stream(0, 1000)]


@pytest.mark.parametrize("kind", ["parquet", "arrow-file"])
def test_a_damaged_file_is_a_unit_that_will_report_it(kind: str, tmp_path: Path) -> None:
    path = table_source(tmp_path / "file", kind, [3000]).path
    path.write_bytes(path.read_bytes()[:-5])
    (damaged,) = find_sources([str(path)])
    (unit,) = cut_units([damaged], Fields(), 1000)
    assert isinstance(unit, Unit)
    assert unit.extents == (Extent(0),)

"""Parquet and Arrow rows have the same fates as lines of JSON."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.core.errors import DamagedInputError, UserError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.formats.tables.isolated import ask
from tokenmill.read.source import Source
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Unit, cut_units

FORMATS = ("parquet", "arrow-file", "arrow-stream")
each_format = pytest.mark.parametrize("file_format", FORMATS)


def write(path: Path, file_format: str, table: pa.Table, rows: int = 2) -> Source:
    """A table as a file with `rows` rows in each row group or record batch."""
    if file_format == "parquet":
        pq.write_table(table, path, row_group_size=rows)
    else:
        new = pa.ipc.new_file if file_format == "arrow-file" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    (source,) = find_sources([str(path)])
    assert source.format == file_format
    return source


def read(
    source: Source, fields: Fields, extent: Extent | None = None, batch_bytes: int = 1 << 20
) -> dict[str, Any]:
    """All batches of a source, joined."""
    found: dict[str, Any] = {
        "texts": [], "rows": [], "bytes": [], "ids": [], "columns": {}, "no_loss": [],
        "rejected": [],
    }  # fmt: skip
    for batch in Reader([source], fields, batch_bytes).read(extent or Extent(0)):
        found["texts"] += batch.texts
        found["rows"] += batch.positions.tolist()
        found["bytes"] += batch.record_bytes.tolist()
        found["ids"] += batch.ids or []
        found["no_loss"] += batch.no_loss or []
        found["rejected"] += [
            (item.position, item.num_bytes, item.reason, item.record) for item in batch.rejected
        ]
        for name, values in batch.columns.items():
            found["columns"].setdefault(name, []).extend(values)
    return found


def strings_with_bad_utf8() -> pa.Array:
    """A column that says it is a string, and is not: "a", 0xff, "é"."""
    offsets = pa.array([0, 1, 2, 4], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"a\xff\xc3\xa9")])


@each_format
@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
    ids=str,
)
def test_every_kind_of_string_column_gives_its_texts(
    kind: pa.DataType, file_format: str, tmp_path: Path
) -> None:
    texts = ["a", "é😀", None, "", "a\0b"]
    values = pa.array(texts).cast(kind.value_type if pa.types.is_dictionary(kind) else kind)
    column = values.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else values
    source = write(tmp_path / "file", file_format, pa.table({"text": column}))
    ask(source, "columns", Fields())
    found = read(source, Fields())
    assert found["texts"] == ["a", "é😀", "", "a\0b"]
    assert (found["rows"], found["bytes"]) == ([0, 1, 3, 4], [1, 6, 0, 3])
    assert found["rejected"] == [(2, 0, "null-text", b"")]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_a_dictionary_of_views_gives_its_texts(kind: pa.DataType, tmp_path: Path) -> None:
    views = pa.array(["foo", "é"]).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), views)
    source = write(tmp_path / "file", "arrow-file", pa.table({"text": column}))
    assert read(source, Fields())["texts"] == ["foo", "é", "foo"]


@each_format
@pytest.mark.parametrize("is_string", [True, False], ids=["string", "binary"])
def test_a_text_that_is_not_utf8_is_set_aside_alone(
    is_string: bool, file_format: str, tmp_path: Path
) -> None:
    column = strings_with_bad_utf8() if is_string else pa.array([b"a", b"\xff", "é".encode()])
    found = read(write(tmp_path / "file", file_format, pa.table({"text": column})), Fields())
    assert (found["texts"], found["rows"]) == (["a", "é"], [0, 2])
    assert found["rejected"] == [(1, 1, "invalid-utf8", b"\xff")]


@each_format
def test_a_kept_value_that_is_not_utf8_sets_its_row_aside(file_format: str, tmp_path: Path) -> None:
    """As a line of JSON is set aside for it; its text stays in the books."""
    table = pa.table({"text": ["one", "two", "three"], "k": strings_with_bad_utf8()})
    found = read(write(tmp_path / "file", file_format, table), Fields(id="k", keep=("k",)))
    assert (found["texts"], found["ids"]) == (["one", "three"], ["a", "é"])
    assert found["columns"] == {"k": ["a", "é"]}
    assert found["rejected"] == [(1, 3, "invalid-utf8", b"two")]


@each_format
def test_a_column_of_nulls_has_no_texts(file_format: str, tmp_path: Path) -> None:
    source = write(tmp_path / "file", file_format, pa.table({"text": pa.nulls(2)}))
    ask(source, "columns", Fields())
    assert read(source, Fields())["rejected"] == [
        (0, 0, "null-text", b""),
        (1, 0, "null-text", b""),
    ]


@each_format
def test_nested_columns_are_named_with_dots(file_format: str, tmp_path: Path) -> None:
    rows = [{"t": "a", "m": {"i": 1}}, None, {"t": None, "m": None}, {"t": "b", "m": None}]
    source = write(tmp_path / "file", file_format, pa.table({"data": rows}))
    fields = Fields(text="data.t", id="data.m.i", keep=("data.m",))
    ask(source, "columns", fields)
    found = read(source, fields)
    assert (found["texts"], found["rows"], found["ids"]) == (["a", "b"], [0, 3], ["1", None])
    assert found["columns"] == {"data.m": ['{"i":1}', None]}
    assert [item[0] for item in found["rejected"]] == [1, 2]


@each_format
def test_spans_may_be_pairs_or_structs_and_bad_ones_set_their_row_aside(
    file_format: str, tmp_path: Path
) -> None:
    table = pa.table(
        {
            "text": ["one", "two", "three"],
            "pairs": [[[0, 1], [2, 3]], None, [[3, 1]]],
            "structs": [[{"start": 0, "stop": 1}], [], [{"start": 3, "stop": 1}]],
        }
    )
    source = write(tmp_path / "file", file_format, table)
    pairs = read(source, Fields(no_loss="pairs"))
    structs = read(source, Fields(no_loss="structs"))
    assert pairs["no_loss"] == [[(0, 1), (2, 3)], []]
    assert structs["no_loss"] == [[(0, 1)], []]
    assert pairs["rejected"] == structs["rejected"] == [(2, 5, "invalid-spans", b"three")]


CHOOSE = (
    "choose one of these; if the text field differs between inputs, --text-field GLOB=NAME for "
    "each of them; in --keep and --by, write 'NAME?' if some records lack the field"
)


@each_format
@pytest.mark.parametrize(
    ("fields", "what", "hint"),
    [
        (Fields(text="txet"), "cannot find the column 'txet'", "did you mean text?"),
        (Fields(id="uid"), "cannot find the column 'uid'", CHOOSE),
        (Fields(keep=("text.x",)), "cannot find the column 'text.x'", CHOOSE),
        (Fields(text="n"), "column 'n' does not contain text", ""),
    ],
)
def test_a_wrong_column_is_refused_even_by_a_reader_that_was_not_asked(
    fields: Fields, what: str, hint: str, file_format: str, tmp_path: Path
) -> None:
    source = write(tmp_path / "file", file_format, pa.table({"text": ["a"], "n": [1]}))
    for check in (lambda: ask(source, "columns", fields), lambda: read(source, fields)):
        with pytest.raises(UserError, match=what) as caught:
            check()
        assert caught.value.where == str(source.path)
        assert caught.value.why in ("the columns are text, n", "its type is int64, not a string")
        assert caught.value.hint == hint


@each_format
@pytest.mark.parametrize("batch_bytes", [1, 100, 1 << 20])
def test_rows_are_counted_through_all_groups_and_batches(
    batch_bytes: int, file_format: str, tmp_path: Path
) -> None:
    texts = [f"document {number}" for number in range(10)]
    source = write(tmp_path / "file", file_format, pa.table({"text": texts}), rows=3)
    found = read(source, Fields(), batch_bytes=batch_bytes)
    assert (found["texts"], found["rows"]) == (texts, list(range(10)))


@pytest.mark.parametrize("file_format", ["parquet", "arrow-file"])
def test_an_extent_of_row_groups_gives_their_rows_with_their_places(
    file_format: str, tmp_path: Path
) -> None:
    texts = [f"document {number}" for number in range(10)]
    source = write(tmp_path / "file", file_format, pa.table({"text": texts}), rows=3)
    parts = [read(source, Fields(), Extent(0, a, b)) for a, b in ((0, 1), (1, 3), (3, 4))]
    assert [part["rows"] for part in parts] == [[0, 1, 2], [3, 4, 5, 6, 7, 8], [9]]
    assert [text for part in parts for text in part["texts"]] == texts


def test_a_unit_of_an_arrow_file_reads_nothing_of_the_batches_before_it(tmp_path: Path) -> None:
    """Its first row is known from the cut, so it need not count the rows before it."""
    path = tmp_path / "file"
    source = write(path, "arrow-file", pa.table({"text": ["first " * 100, "last"]}), rows=1)
    *_, last = cut_units([source], Fields(), 500)
    assert isinstance(last, Unit)
    offsets = struct.pack("<ii", 0, 600)
    data = path.read_bytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, struct.pack("<ii", 0, 1 << 30)))
    os.utime(path, ns=(source.mtime_ns, source.mtime_ns))
    found = read(source, Fields(), last.extents[0])
    assert (found["rows"], found["texts"]) == ([1], ["last"])
    with pytest.raises(DamagedInputError):
        read(source, Fields(), Extent(0, 1, 2))


def test_the_same_documents_give_the_same_batches_in_every_format(tmp_path: Path) -> None:
    rows = [
        {"text": "a", "id": "i-0", "n": 1, "meta": {"lang": "de", "tags": ["x", "y"]}},
        {"text": "é😀\n", "id": None, "n": None, "meta": {"lang": None, "tags": []}},
        {"text": "", "id": "i-2", "n": -(2**40), "meta": None},
        {"text": "<|endoftext|>", "id": "", "n": 0, "meta": {"lang": "", "tags": None}},
    ]
    fields = Fields(id="id", keep=("n", "meta.lang", "meta.tags"))
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (source,) = find_sources([str(lines)])
    expected = read(source, fields)
    assert expected["texts"] == [row["text"] for row in rows]
    assert expected["columns"] == {
        "n": ["1", None, "-1099511627776", "0"],
        "meta.lang": ["de", None, None, ""],
        "meta.tags": ['["x","y"]', "[]", None, None],
    }
    table = pa.Table.from_pylist(rows)
    for file_format in FORMATS:
        found = read(write(tmp_path / file_format, file_format, table), fields)
        for name in ("texts", "ids", "columns", "rejected"):
            assert found[name] == expected[name]


@each_format
def test_a_truncated_file_is_damaged_wherever_it_ends(file_format: str, tmp_path: Path) -> None:
    """An Arrow stream that is cut off between two batches, too."""
    texts = [f"document {number}" for number in range(6)]
    data = write(tmp_path / "whole", file_format, pa.table({"text": texts})).path.read_bytes()
    path = tmp_path / "part"
    for size in range(8, len(data)):
        path.write_bytes(data[:size])
        (source,) = find_sources([str(path)])
        with pytest.raises(DamagedInputError):
            read(source, Fields())


def test_a_second_arrow_stream_in_a_file_is_not_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "file", "arrow-stream", pa.table({"text": ["a"]})).path
    path.write_bytes(path.read_bytes() * 2)
    (source,) = find_sources([str(path)])
    with pytest.raises(DamagedInputError, match="more data after the end"):
        read(source, Fields())

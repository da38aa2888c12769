"""Records of every format become the same documents, by what renders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.core.errors import UserError
from tokenmill.core.records import DocumentBatch, Rejection
from tokenmill.read.documents import Reader
from tokenmill.read.fields import AnyRendering, Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.formats.rendered import RecordRenderer
from tokenmill.read.rendering.renderer import RenderedText, Renderer, TextTemplate
from tokenmill.read.source import Source
from tokenmill.read.sources import check_fields, find_sources
from tokenmill.read.values import UnfitRecordError

RECORDS: list[dict[str, Any]] = [
    {"title": "One", "body": "é", "meta": {"year": 2001, "url": "a"}},
    {"title": "Two", "body": None, "meta": {"year": 2002, "url": "b"}},
    {"title": "Three", "body": "", "meta": {"year": 2003, "url": None}},
]
TEMPLATE = Fields(keep=("meta.url",), rendering=TextTemplate("{title} ({meta.year})\n{body}"))


def jsonl(folder: Path, records: Sequence[Mapping[str, Any]], *lines: bytes) -> Source:
    path = folder / "records.jsonl"
    path.write_bytes(b"".join([*(msgspec.json.encode(each) + b"\n" for each in records), *lines]))
    return find_sources([str(path)])[0]


def table(folder: Path, suffix: str, found: pa.Table) -> Source:
    path = folder / f"records.{suffix}"
    if suffix == "parquet":
        pq.write_table(found, path, row_group_size=2)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, found.schema) as writer:
            writer.write_table(found)
    return find_sources([str(path)])[0]


def read(source: Source, fields: Fields) -> list[DocumentBatch]:
    check_fields([source], fields)
    return list(Reader([source], fields, 1 << 20).read(Extent(0)))


def texts(batches: Sequence[DocumentBatch]) -> list[tuple[str, str | None]]:
    return [
        pair
        for batch in batches
        for pair in zip(batch.texts, batch.columns["meta.url"], strict=True)
    ]


def reasons(batches: Sequence[DocumentBatch]) -> list[str]:
    return [item.reason for batch in batches for item in batch.rejected]


WANTED = [("One (2001)\né", "a"), ("Three (2003)\n", None)]


def test_a_template_of_lines(tmp_path: Path) -> None:
    batches = read(jsonl(tmp_path, RECORDS), TEMPLATE)
    assert texts(batches) == WANTED
    assert reasons(batches) == ["missing-field"]
    assert (
        sum(int(batch.record_bytes.sum()) for batch in batches)
        + sum(item.num_bytes for batch in batches for item in batch.rejected)
        == (tmp_path / "records.jsonl").stat().st_size
    )
    (rejected,) = batches[0].rejected
    assert rejected.record == msgspec.json.encode(RECORDS[1]) + b"\n"
    assert (rejected.position, rejected.num_bytes) == (
        len(msgspec.json.encode(RECORDS[0])) + 1, len(rejected.record),
    )  # fmt: skip


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_template_of_rows(suffix: str, tmp_path: Path) -> None:
    batches = read(table(tmp_path, suffix, pa.Table.from_pylist(RECORDS)), TEMPLATE)
    assert texts(batches) == WANTED
    assert reasons(batches) == ["missing-field"]
    assert [p for batch in batches for p in batch.positions.tolist()] == [0, 2]
    assert [n for batch in batches for n in batch.record_bytes.tolist()] == [13, 13]


def test_a_bad_line_among_lines_costs_itself_alone(tmp_path: Path) -> None:
    lines = [b'{"title": 1e999}\n', b"[]\n", b" \n", b'{"x": \xff}\n', b'{"title": "T"']
    batches = read(jsonl(tmp_path, RECORDS, *lines), TEMPLATE)
    assert texts(batches) == WANTED
    assert reasons(batches) == [
        "missing-field", "number-out-of-range", "not-an-object", "invalid-utf8", "invalid-json",
    ]  # fmt: skip
    assert [batch.blank_bytes for batch in batches] == [2]
    assert (
        int(batches[0].record_bytes.sum()) + sum(item.num_bytes for item in batches[0].rejected) + 2
        == (tmp_path / "records.jsonl").stat().st_size
    )


def test_bytes_of_a_table_are_text_and_those_that_are_not_cost_their_row(tmp_path: Path) -> None:
    columns = {"title": [b"\xc3\xa9", b"\xff"], "body": ["a", "b"]}
    fields = Fields(rendering=TextTemplate("{title}{body}"))
    batches = read(table(tmp_path, "parquet", pa.table(columns)), fields)
    assert [batch.texts for batch in batches] == [["éa"]]
    assert [(r.position, r.reason, r.record) for r in batches[0].rejected] == [
        (1, "invalid-utf8", b'{"title":null,"body":"b"}')
    ]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_every_field_of_a_template_must_be_there(suffix: str, tmp_path: Path) -> None:
    source = (
        jsonl(tmp_path, RECORDS)
        if suffix == "jsonl"
        else table(tmp_path, suffix, pa.Table.from_pylist(RECORDS))
    )
    with pytest.raises(UserError, match="'titel'") as caught:
        check_fields([source], Fields(rendering=TextTemplate("{body}{titel}")))
    assert "title" in caught.value.why


def test_plain_text_has_no_fields(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("{title}")
    sources = find_sources([str(tmp_path / "a.txt")])
    with pytest.raises(UserError, match="an input contains no records"):
        check_fields(sources, TEMPLATE)


def test_a_field_with_loss_ranges_beside_a_template_is_refused() -> None:
    with pytest.raises(UserError, match="cannot use the field 'spans' for the loss"):
        Fields(no_loss="spans", rendering=TextTemplate("{a}"))


class Turns(msgspec.Struct, frozen=True, tag="turns"):
    """Each turn is a text of its own; the second half of it carries no loss."""

    fields: tuple[str, ...] | None = None
    optional: frozenset[str] = frozenset()
    has_no_loss: bool = True

    def renderer(self) -> Renderer:
        return self.render

    def render(self, record: Mapping[str, Any]) -> list[RenderedText]:
        if "turns" not in record:
            raise UnfitRecordError("no-turns", "there are none")
        return [RenderedText(turn, [(len(turn) // 2, len(turn))]) for turn in record["turns"]]


TURNS = Fields(id="id", keep=("by",), rendering=cast(AnyRendering, Turns()))


def test_several_texts_of_a_record_share_its_place_and_its_columns() -> None:
    records = [
        {"id": "a", "by": 1, "turns": ["hi", "ho"]},
        {"id": "b", "by": 2, "turns": []},
        {"id": "c", "by": 3},
        {"id": "d", "by": 4, "turns": ["half \ud800"]},
        {"id": "e", "by": 5, "turns": ["yes"]},
    ]
    other = Rejection(7, 25, 5, "invalid-json", "", b"{{{{\n")
    batch = RecordRenderer(TURNS).render(
        7, records, np.array([0, 10, 20, 30, 40]), np.array([10, 10, 5, 10, 10]),
        as_found=lambda index: b"line %d" % index, rejected=[other],
    )  # fmt: skip
    assert batch.texts == ["hi", "ho", "", "yes"]
    assert batch.positions.tolist() == [0, 0, 10, 40]
    assert batch.record_bytes.tolist() == [10, 0, 10, 10]
    assert batch.ids == ["a", "a", "b", "e"]
    assert batch.columns == {"by": ["1", "1", "2", "5"]}
    assert batch.no_loss == [[(1, 2)], [(1, 2)], [], [(1, 3)]]
    assert batch.num_further == 1
    assert [(r.position, r.num_bytes, r.reason, r.record) for r in batch.rejected] == [
        (20, 5, "no-turns", b"line 2"),
        (25, 5, "invalid-json", b"{{{{\n"),
        (30, 10, "lone-surrogate", b"line 3"),
    ]


def test_a_block_of_which_every_record_is_rejected_has_empty_columns(tmp_path: Path) -> None:
    (batch,) = read(jsonl(tmp_path, RECORDS[1:2]), TEMPLATE)
    assert (batch.texts, batch.columns, len(batch.rejected)) == ([], {"meta.url": []}, 1)


def test_rows_take_the_bytes_of_their_texts() -> None:
    batch = RecordRenderer(TURNS).render(0, [{"turns": ["é", "ab", ""]}, {}], np.array([3, 4]))
    assert batch.record_bytes.tolist() == [2, 2, 0]
    assert [(item.num_bytes, item.record) for item in batch.rejected] == [(2, b"{}")]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_rendering_may_want_the_whole_record(suffix: str, tmp_path: Path) -> None:
    records = [{"id": "a", "by": 1, "turns": ["hi", "ho"]}, {"id": None, "by": 2, "turns": ["yes"]}]
    source = (
        jsonl(tmp_path, records)
        if suffix == "jsonl"
        else table(tmp_path, suffix, pa.Table.from_pylist(records))
    )
    (batch,) = read(source, TURNS)
    assert (batch.texts, batch.ids) == (["hi", "ho", "yes"], ["a", "a", None])

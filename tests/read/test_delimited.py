"""CSV and TSV: every row as Python's `csv` reads it, and a bad one costs itself alone."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from records_kit import read, read_as_stream, source_of
from tokenmill.core.errors import UserError
from tokenmill.read.fields import Fields
from tokenmill.read.formats import delimited
from tokenmill.read.formats.format import FORMATS, Extent
from tokenmill.read.per_input import PerInput
from tokenmill.read.rendering.renderer import TextTemplate
from tokenmill.read.rendering.transform import Transform
from tokenmill.read.source import Source
from tokenmill.read.sources import check_fields, find_sources

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

READ = {
    "plain": (b"id,text\n1,a\n", ["a"]),
    "no line end": (b"id,text\n1,a", ["a"]),
    "no line end after quoted ones": (b'text\na\n"b\nc"', ["a", "b\nc"]),
    "no line end after a closing quote": (b'id,text\n1,"a ""b""\r\n"', ['a "b"\r\n']),
    "CRLF": (b"id,text\r\n1,a\r\n2,b\r\n", ["a", "b"]),
    "CR": (b"id,text\r1,a\r2,b\r", ["a", "b"]),
    "byte order mark": (b"\xef\xbb\xbftext,id\na,1\n", ["a"]),
    "empty lines": (b"\n\nid,text\n\n1,a\r\n\r\n2,b\n\n", ["a", "b"]),
    "quoted line ends": (b'id,text\n1,"a\nb\r\nc"\n2,d\n', ["a\nb\r\nc", "d"]),
    "doubled quotes": (b'id,text\n1,"a ""b"" c"\n', ['a "b" c']),
    "a quoted header": (b'id,"text"\n1,a\n', ["a"]),
    "a header over two lines": (b'"i\nd",text\n1,a\n', ["a"]),
    "commas in quotes": (b'id,text\n1,"a, b"\n', ["a, b"]),
    "a quote inside a field": (b'id,text\n1,5" disk\n2,b\n', ['5" disk', "b"]),
    "spaces": (b"id,text\n1,  a \n", ["  a "]),
    "an empty text": (b"id,text\n1,\n2,\"\"\n", ["", ""]),
    "NUL": (b"id,text\n1,a\x00b\n", ["a\0b"]),
    "U+2028": ("id,text\n1,a\u2028b\n".encode(), ["a\u2028b"]),
    "one column": (b'text\na\n""\nb\n', ["a", "", "b"]),
    "a field of a megabyte": (b"id,text\n1," + b"a" * (1 << 20) + b"\n", ["a" * (1 << 20)]),
    "5,000 columns": (
        b",".join([b"c"] * 4999) + b",text\n" + b"," * 4999 + b"a\n",
        ["a"],
    ),
    "a header and no rows": (b"id,text\n", []),
    "a header without a line end": (b"id,text", []),
}  # fmt: skip

REJECTED = {
    "too few fields": (b"1\n", "ragged-row", "the row has 1 fields, but the header has 2"),
    "too many fields": (b"1,a,b\n", "ragged-row", "the row has 3 fields, but the header has 2"),
    "text after a closing quote": (b'1,"a"b\n', "invalid-csv", "',' expected after '\"'"),
    "a stray quote": (b'1,"a\n1,"b"\n', "invalid-csv", "',' expected after '\"'"),
    "a quote never closed": (b'1,"a\n', "unclosed-quote", "unexpected end of data"),
    "invalid UTF-8": (b"1,\xff\n", "invalid-utf8", "invalid start byte at byte 2 of the record"),
    "invalid UTF-8 elsewhere": (
        b"\xc3,a\n",
        "invalid-utf8",
        "invalid continuation byte at byte 0 of the record",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_a_good_row_is_read_as_it_is(tmp_path: Path, name: str) -> None:
    content, texts = READ[name]
    found = read(source_of(tmp_path / "a.csv", content))
    assert (found.texts, found.rejected) == (texts, [])
    assert (found.num_bytes, found.digested) == (len(content), content)


@pytest.mark.parametrize("name", REJECTED)
def test_a_bad_row_is_set_aside_alone_with_its_reason(tmp_path: Path, name: str) -> None:
    bad, reason, detail = REJECTED[name]
    content = b"id,text\n0,first\n" + bad + b"2,last\n"
    found = read(source_of(tmp_path / "a.csv", content))
    assert found.documents == [(8, 8, "first"), (16 + len(bad), 7, "last")]
    assert (found.rejected, found.details) == ([(16, reason, bad)], [detail])
    assert found.num_bytes == len(content)


def test_tabs_separate_the_fields_of_tsv(tmp_path: Path) -> None:
    content = b'text\tid\na, b\t1\n"c\td"\t2\n'
    source = source_of(tmp_path / "a.tsv", content)
    found = read(source, Fields(id="id"))
    assert source.format == "tsv"
    assert (found.texts, found.ids) == (["a, b", "c\td"], ["1", "2"])


def test_ids_columns_and_spans_are_taken_by_the_names_of_the_header(tmp_path: Path) -> None:
    content = b'id,text,lang,spans\n1,hello,en,"[[0, 2]]"\n2,hi,,\n3,x,de,"[[2, 1]]"\n'
    fields = Fields(id="id", keep=("lang",), no_loss="spans")
    found = read(source_of(tmp_path / "a.csv", content), fields)
    assert found.ids == ["1", "2"]
    assert found.columns == {"lang": ["en", ""]}
    assert found.no_loss == [[(0, 2)], []]
    assert found.reasons == ["invalid-spans"]


def test_json_lines_that_are_read_as_csv_are_recognized(tmp_path: Path) -> None:
    line = b'{"text": "%s", "id": 1}\n' % (b"word " * 400)
    (tmp_path / "a.jsonl").write_bytes(line)
    (source,) = find_sources([str(tmp_path / "a.jsonl")], PerInput("csv"))
    with pytest.raises(UserError) as caught:
        check_fields([source], Fields())
    assert str(caught.value) == (
        "an input looks like jsonl, not like csv\n"
        f"  where: {tmp_path / 'a.jsonl'}\n"
        f"  why: its first line begins with {line[:60].decode().rstrip()}\n"
        "  next: omit --format csv, or also add --format 'a.jsonl=jsonl'"
    )


def test_a_missing_column_is_refused_with_the_columns_that_there_are(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.csv", b"id,texts\n1,a\n")
    with pytest.raises(UserError) as caught:
        check_fields([source], Fields())
    assert caught.value.what == "cannot find the column 'text'"
    assert caught.value.why == "the first row must name the columns; it names id, texts"
    assert caught.value.hint == "did you mean --text-field texts?"
    assert read(source).reasons == ["missing-field"]  # of a file that nobody has previewed


def test_a_column_named_twice_is_refused(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.csv", b"text,text\na,b\n")
    with pytest.raises(UserError, match="two columns are named 'text'"):
        check_fields([source], Fields())
    found = read(source)  # of a file that nobody has previewed
    assert (found.texts, found.reasons) == ([], ["invalid-csv"])
    assert found.details == ["two columns are named 'text'"]


def test_of_two_columns_of_one_name_none_is_lost_to_a_transform(tmp_path: Path) -> None:
    whole_record = Fields(rendering=Transform(name="python:json:dumps", sha256=""))
    source = source_of(tmp_path / "a.csv", b"text,n,n\na,1,2\n")
    with pytest.raises(UserError, match="two columns are named 'n'"):
        check_fields([source], whole_record)
    assert read(source).texts == ["a"], "where nobody reads it"


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("id,text\n1,a\n".encode("utf-16-le"), "if it is UTF-16, convert it: iconv"),
        (b"Once upon a time, there was\n", "--format text"),
    ],
)
def test_what_is_no_csv_gets_a_hint_at_what_it_is(
    content: bytes, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        check_fields([source_of(tmp_path / "a.csv", content)], Fields())
    assert hint in (caught.value.hint or "")


def test_files_are_detected_by_name_and_read_by_name_of_the_format(tmp_path: Path) -> None:
    content = b"id,text\n1,a\n"
    compressed = source_of(tmp_path / "a.csv.gz", gzip.compress(content))
    assert (compressed.format, compressed.compression) == ("csv", "gzip")
    assert source_of(tmp_path / "a.txt", content).format == "text"
    forced = source_of(tmp_path / "b.txt", content, "csv")
    assert read(compressed).documents == read(forced).documents == [(8, 4, "a")]


def test_a_quote_that_is_never_closed_costs_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "MAX_QUOTED_BYTES", 1 << 10)
    rows = b"".join(b"%d,text %d\n" % (number, number) for number in range(3000))
    content = b'id,text\n0,"open\n' + rows
    expected = [f"text {number}" for number in range(3000)]
    source = source_of(tmp_path / "a.csv", content)
    at_the_end = read(source)
    short = Fields(max_record=1 << 10)
    in_between = read(source, short, batch_bytes=1 << 8)
    in_parts = read_as_stream(source, tmp_path, 1 << 12, 1 << 8, short)
    assert at_the_end.texts == in_between.texts == in_parts.texts == expected
    assert at_the_end.rejected == in_between.rejected == [(8, "unclosed-quote", b'0,"open\n')]
    assert in_parts == in_between


@pytest.mark.parametrize("batch_bytes", [1, 150, 1 << 20])
def test_the_lines_of_a_row_that_is_too_long_are_no_rows(batch_bytes: int, tmp_path: Path) -> None:
    row = b'"%s",2\n' % b"\n".join(b"line %d, not a row" % number for number in range(30))
    content = b'text,x\n"a",1\n' + row + b'"b",3\n'
    source = source_of(tmp_path / "a.csv", content)
    short = Fields(max_record=200)
    found = read(source, short, batch_bytes)
    assert found.texts == ["a", "b"]
    assert found.rejected == [(13, "too-long", row)]
    assert read_as_stream(source, tmp_path, 1, batch_bytes, short) == found


def test_a_carriage_return_at_the_limit_ends_a_row_in_every_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "MAX_QUOTED_BYTES", 13)
    content = b'id,text\r"""b","a\nx"a\rx"x"\r\r\nb\n\r"ba'
    source = source_of(tmp_path / "a.csv", content)
    short = Fields(max_record=13)
    assert read_as_stream(source, tmp_path, 1, 1, short) == read(source, short)


@quick
@given(
    body=st.text(st.sampled_from('ab",\r\n'), max_size=40),
    batch_bytes=st.integers(1, 64),
    unit_bytes=st.integers(1, 64),
)
def test_rows_end_where_csv_ends_them_in_whatever_blocks_and_parts(
    tmp_path: Path, body: str, batch_bytes: int, unit_bytes: int
) -> None:
    content = b"id,text\n" + body.encode()
    source = source_of(tmp_path / "a.csv", content)
    found = read(source)
    assert read(source, batch_bytes=batch_bytes) == found
    assert read_as_stream(source, tmp_path, unit_bytes, batch_bytes) == found
    assert (found.num_bytes, found.digested) == (len(content), content)
    rows = [next(csv.reader([record])) for record in _records(source)]
    expected = [row for row in csv.reader(io.StringIO(body, newline="")) if row]
    assert rows[: len(expected) - 1] == expected[:-1]  # a quote may be open in the last one


@quick
@given(
    body=st.text(st.sampled_from('ab",\t;\r\nä\0'), max_size=40),
    form=st.sampled_from(["csv", "tsv"]),
    batch_bytes=st.integers(1, 64),
)
def test_what_csv_accepts_is_read_as_csv_reads_it(
    tmp_path: Path, body: str, form: str, batch_bytes: int
) -> None:
    delimiter = "," if form == "csv" else "\t"
    header = f"id{delimiter}text\n"
    source = source_of(tmp_path / f"a.{form}", (header + body).encode())
    lines = io.StringIO(body, newline="")
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter, strict=True) if row]
    except csv.Error:
        assert read(source, batch_bytes=batch_bytes).rejected
        return
    found = read(source, Fields(id="id"), batch_bytes)
    texts = zip(found.ids, found.texts, strict=True)
    assert [*map(list, texts)] == [row for row in rows if len(row) == 2]
    assert found.reasons == ["ragged-row" for row in rows if len(row) != 2]


def _records(source: Source) -> list[str]:
    """The records of a file as they are found, good or bad."""
    blocks = FORMATS["csv"].blocks(source, Extent(0), Fields(), 1 << 20)
    contents = [block.content for block in blocks]
    return [
        content.body[start:stop].decode()
        for content in contents
        for start, stop in content.spans.bounds
    ]


def test_a_text_may_be_made_of_several_columns(tmp_path: Path) -> None:
    fields = Fields(id="id", rendering=TextTemplate("{title}: {body}"))
    source = source_of(tmp_path / "a.csv", b"id,title,body\n1,a,b\n2,c\n3,d,\n")
    check_fields([source], fields)
    found = read(source, fields)
    assert (found.texts, found.ids, found.reasons) == (["a: b", "d: "], ["1", "3"], ["ragged-row"])
    with pytest.raises(UserError, match="the column 'heading'"):
        check_fields([source], Fields(rendering=TextTemplate("{heading}")))

"""JSON arrays, and records over several lines: the same records that Python's `json` reads."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from records_kit import read, read_as_stream, source_of
from tokenmill.core.errors import DamagedInputError, UserError
from tokenmill.read.fields import Fields
from tokenmill.read.formats import json_array
from tokenmill.read.sources import check_fields

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

READ = {
    "on one line": (b'[{"text": "a"},{"text": "b"}]', ["a", "b"]),
    "a record a line": (b'[\n{"text": "a"},\n{"text": "b"}\n]\n', ["a", "b"]),
    "indented": (json.dumps([{"text": "a"}, {"text": "b"}], indent=2).encode(), ["a", "b"]),
    "CRLF": (b'[\r\n  {"text": "a"},\r\n  {"text": "b"}\r\n]\r\n', ["a", "b"]),
    "empty": (b"[]", []),
    "byte order mark": (b'\xef\xbb\xbf [{"text": "a"}]', ["a"]),
    "brackets in strings": (rb'[{"text": "}]\"[{"},{"text": "\\"}]', ['}]"[{', "\\"]),
    "nested deep": (b'[{"x": ' + b'[{"y":' * 40 + b"1" + b"}]" * 40 + b', "text": "a"}]', ["a"]),
    "no suffix in common": (b'{\n "text": "a"\n}\n{\n "text": "b"\n}\n', ["a", "b"]),
    "one record over several lines": (b'{\n"text": "a"\n}', ["a"]),
    "a text of a megabyte": (b'[{"text": "' + b"a" * (1 << 20) + b'"}]', ["a" * (1 << 20)]),
}

REJECTED = {
    "no text": (b'{"id": 1}', "missing-field"),
    "null": (b'{"text": null}', "null-text"),
    "a number as text": (b'{"text": 1}', "text-not-a-string"),
    "NaN": (b'{"text": "b", "x": NaN}', "invalid-json"),
    "no colon": (b'{"text" "b"}', "invalid-json"),
    "a number": (b"17", "not-an-object"),
    "a string": (b'"[b}"', "not-an-object"),
    "an array": (b'["text", "b"]', "not-an-object"),
    "a bare word": (b"nothing", "invalid-json"),
    "a tab in a string": (b'{"text": "b\tb"}', "invalid-json"),
    "invalid UTF-8": (b'{"text": "\xff"}', "invalid-utf8"),
    "half of a surrogate pair": (rb'{"text": "\ud800"}', "lone-surrogate"),
    "1,000 levels": (b"[" * 1000 + b"]" * 1000, "invalid-json"),
}

ASTRAY = {
    "a quote": (b'{"text": "b}', "invalid-json"),
    "a bracket that closes": (b'{"text": "b"]}', "invalid-json"),
    "a bracket that opens": (b'{"text": "b", "x": [}', "invalid-json"),
    "no bracket that closes": (b'{"text": "b"', "invalid-json"),
    "a line end in a string": (b'{"text": "b\n"}', "invalid-json"),
}


@pytest.mark.parametrize("name", READ)
def test_a_good_file_is_read_as_it_is(tmp_path: Path, name: str) -> None:
    content, texts = READ[name]
    source = source_of(tmp_path / "a.json", content)
    found = read(source)
    assert source.format == "json-array"
    assert (found.texts, found.rejected) == (texts, [])
    assert (found.num_bytes, found.digested) == (len(content), content)


@pytest.mark.parametrize("name", REJECTED)
@pytest.mark.parametrize("between", [b"", b"\n  "], ids=["one line", "lines"])
def test_a_bad_element_is_set_aside_alone(tmp_path: Path, name: str, between: bytes) -> None:
    bad, reason = REJECTED[name]
    elements = [b'{"text": "a"}', bad, b'{"text": "c"}']
    content = b"[" + between + (b"," + between).join(elements) + between + b"]"
    found = read(source_of(tmp_path / "a.json", content))
    place = 1 + len(between) + 13 + 1 + len(between)
    assert found.texts == ["a", "c"]
    assert found.rejected == [(place, reason, bad)]
    assert found.num_bytes == len(content)


@pytest.mark.parametrize("name", ASTRAY)
def test_a_quote_or_bracket_astray_costs_its_element_where_each_has_lines(
    tmp_path: Path, name: str
) -> None:
    bad, reason = ASTRAY[name]
    elements = [b'{"text": "a"}', bad, b'{"text": "c"}', b'{"text": "d"}']
    content = b"[\n  " + b",\n  ".join(elements) + b"\n]"
    source = source_of(tmp_path / "a.json", content)
    found = read(source)
    assert found.texts == ["a", "c", "d"]
    assert found.rejected == [(21, reason, bad)]
    assert read_as_stream(source, tmp_path, unit_bytes=1, batch_bytes=1) == found
    last = b"[\n  " + b",\n  ".join([*elements, bad]) + b"\n]"
    assert read(source_of(tmp_path / "b.json", last)).reasons == [reason, reason]


@pytest.mark.parametrize(
    "content",
    [
        b'[{"text": "a"}, {"text": "b}, {"text": "c"}]',
        b'[{"text": "a"}, {"text": "b"]}]',
        b'[{"text": "a"}, }',
    ],
)
def test_on_one_line_it_is_damage(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DamagedInputError, match="no next element can be found"):
        read(source_of(tmp_path / "a.json", content))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'[{"text": "a"}', "the array does not end: the file is truncated"),
        (b'[\n  {"text": "a"},\n  {"te', "the array does not end: the file is truncated"),
        (b"[", "the array does not end: the file is truncated"),
        (b'[{"text": "a"}] [', "there is more data after the end of the array, before '['"),
        (b'[{"text": "a"}],', "there is more data after the end of the array, before ','"),
        (b'[{"text": "a"} {"text": "b"}]', """a comma is missing, before '{"text": "b"}]'"""),
        (b'[{"text": "a"},, 1]', "a value is missing, before ', 1]'"),
        (b'[, {"text": "a"}]', """a value is missing, before ', {"text": "a"}]'"""),
        (b'[{"text": "a"},]', "a value is missing, before ']'"),
        (b'{\n"text": "a"\n}, {}', "a value is missing, before ', {}'"),
    ],
)
def test_brackets_and_commas_in_the_wrong_places_are_damage(
    tmp_path: Path, content: bytes, why: str
) -> None:
    with pytest.raises(DamagedInputError) as caught:
        read(source_of(tmp_path / "a.json", content))
    assert caught.value.why == why


@pytest.mark.parametrize("batch_bytes", [8, 11, 14, 15, 20, 30, 1 << 20])
def test_an_array_cut_off_anywhere_is_never_read_as_a_whole_one(
    batch_bytes: int, tmp_path: Path
) -> None:
    content = b'[\n{"text":"a"},\n{"text":"bbbbbbbb"}\n]'
    for size in range(2, len(content)):
        cut_off = source_of(tmp_path / "a.json", content[:size], "json-array")
        with pytest.raises(DamagedInputError, match="the array does not end"):
            read(cut_off, batch_bytes=batch_bytes)
        with pytest.raises(DamagedInputError, match="the array does not end"):
            read_as_stream(cut_off, tmp_path, 1, batch_bytes)


def test_a_last_record_that_was_cut_off_is_set_aside(tmp_path: Path) -> None:
    found = read(source_of(tmp_path / "a.json", b'{\n"text": "a"\n}\n{\n"text": "b'))
    assert (found.texts, found.reasons) == (["a"], ["invalid-json"])


def test_an_element_without_end_takes_no_more_memory_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Fields(max_record=1 << 10)
    good = b"".join(b',\n{"text": "%d"}' % number for number in range(1000))
    source = source_of(tmp_path / "a.json", b'[\n{"text": "a", "x": [' + good + b"\n]")
    found = read(source, short, batch_bytes=1 << 8)
    assert found.texts == [str(number) for number in range(1000)]
    assert found.reasons == ["invalid-json"]
    assert read_as_stream(source, tmp_path, 1 << 9, 1 << 8, short) == found
    monkeypatch.setattr(json_array, "MAX_WASTED_BYTES", 1 << 10)
    source = source_of(tmp_path / "b.json", b"[\n" + b'{"a": [\n' * 1000 + b"\n]")
    with pytest.raises(DamagedInputError, match="no next element can be found"):
        read(source, short)


@pytest.mark.parametrize("batch_bytes", [8, 1 << 20])
@pytest.mark.parametrize("after", ["]", "\n]\n", "\n]" + "\n" * 50], ids=["", "line", "space"])
def test_an_array_ends_after_a_last_element_that_is_too_long(
    after: str, batch_bytes: int, tmp_path: Path
) -> None:
    short = Fields(max_record=20)
    for size in range(50):
        content = '[\n{"text":"a"},\n{"text":"%s"}' % ("x" * (10 + size))
        source = source_of(tmp_path / "a.json", (content + after).encode())
        found = read(source, short, batch_bytes)
        assert (found.texts, found.reasons) == (["a"], ["too-long"])
        assert read_as_stream(source, tmp_path, 1, batch_bytes, short) == found
        truncated = source_of(tmp_path / "b.json", content.encode())
        with pytest.raises(DamagedInputError, match="the array does not end"):
            read(truncated, short, batch_bytes)


def test_fields_are_those_of_json_lines(tmp_path: Path) -> None:
    content = b'[{"id": 7, "meta": {"body": "a", "lang": "de"}}, {"meta": {"body": "b"}}]'
    source = source_of(tmp_path / "a.json", content)
    fields = Fields("meta.body", id="id", keep=("meta.lang",))
    check_fields([source], fields)
    found = read(source, fields)
    assert (found.texts, found.ids) == (["a", "b"], ["7", None])
    assert found.columns == {"meta.lang": ["de", None]}
    with pytest.raises(UserError, match="the field 'text' in the first records"):
        check_fields([source], Fields())


def inside(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Arrays and objects of some values."""
    return st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=2), values, max_size=3)


scalars = st.none() | st.integers() | st.text(st.sampled_from('a"\\[]{},\n ä'), max_size=5)
values = st.recursive(scalars, inside, max_leaves=10)


@quick
@given(
    records=st.lists(st.dictionaries(st.sampled_from(["text", "a", "b"]), values, max_size=3)),
    indent=st.sampled_from([None, 0, 1]),
    as_array=st.booleans(),
    batch_bytes=st.integers(1, 64),
    unit_bytes=st.integers(1, 64),
)
def test_records_are_those_of_json_in_whatever_blocks_and_parts(
    tmp_path: Path,
    records: list[dict[str, Any]],
    indent: int | None,
    as_array: bool,
    batch_bytes: int,
    unit_bytes: int,
) -> None:
    each = [json.dumps(record, indent=indent) for record in records]
    text = json.dumps(records, indent=indent) if as_array else "\n".join(each)
    source = source_of(tmp_path / "a.json", text.encode(), "json-array")
    found = read(source)
    assert found.texts == [item["text"] for item in records if isinstance(item.get("text"), str)]
    assert [json.loads(record) for *_, record in found.rejected] == [
        item for item in records if not isinstance(item.get("text"), str)
    ]
    assert (found.num_bytes, found.digested) == (len(text.encode()), text.encode())
    assert read(source, batch_bytes=batch_bytes) == found
    assert read_as_stream(source, tmp_path, unit_bytes, batch_bytes) == found


@quick
@given(
    content=st.text(st.sampled_from('[]{},:"\\\n a1'), max_size=40),
    batch_bytes=st.integers(1, 64),
    unit_bytes=st.integers(1, 64),
)
def test_anything_else_is_read_set_aside_or_damage_in_whatever_blocks(
    tmp_path: Path, content: str, batch_bytes: int, unit_bytes: int
) -> None:
    source = source_of(tmp_path / "a.json", content.encode(), "json-array")
    try:
        found = read(source)
    except DamagedInputError:
        with pytest.raises(DamagedInputError):
            read(source, batch_bytes=batch_bytes)
        with pytest.raises(DamagedInputError):
            read_as_stream(source, tmp_path, unit_bytes, batch_bytes)
        return
    assert (found.num_bytes, found.digested) == (len(content), content.encode())
    assert read(source, batch_bytes=batch_bytes) == found
    assert read_as_stream(source, tmp_path, unit_bytes, batch_bytes) == found


pieces_of_arrays = st.sampled_from(
    ['{"text": "a"}', "[1]", "[", "]", ",", ", ", "\n", "1", "{", "}"]
)


@quick
@given(
    inside=st.lists(pieces_of_arrays, max_size=10),
    before=st.sampled_from(["[", "[\n"]),
    after=st.sampled_from(["]", "]]", "],", ""]),
    batch_bytes=st.integers(1, 64),
)
def test_of_an_array_that_json_refuses_something_is_rejected_or_damaged(
    tmp_path: Path, inside: list[str], before: str, after: str, batch_bytes: int
) -> None:
    text = "".join([before, *inside, after])
    source = source_of(tmp_path / "a.json", text.encode(), "json-array")
    try:
        elements = json.loads(text)
    except ValueError:
        with contextlib.suppress(DamagedInputError):
            assert read(source, batch_bytes=batch_bytes).rejected
        return
    found = read(source, batch_bytes=batch_bytes)
    good = [element["text"] for element in elements if isinstance(element, dict) and element]
    assert (found.texts, len(found.rejected)) == (good, len(elements) - len(good))

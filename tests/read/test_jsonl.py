"""A line's fate depends on that line alone: parsed fast, slowly, or in any company."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.core.errors import UserError
from tokenmill.core.records import DocumentBatch
from tokenmill.read.blocks import BOM
from tokenmill.read.fields import Fields
from tokenmill.read.formats.json_records import JsonParser

TEXT = JsonParser(Fields())
RICH = JsonParser(Fields(id="id", keep=("meta.lang", "n"), no_loss="spans"))
NESTED = JsonParser(Fields(text="meta.text", id="meta.id", keep=("meta.a.b", "n")))

READ = {
    "plain": (rb'{"text": "a"}', "a"),
    "other fields": (rb'{"id": 1, "text": "a", "z": {"y": [1, null]}}', "a"),
    "umlaut": ('{"text": "ä😀"}'.encode(), "ä😀"),
    "empty text": (rb'{"text": ""}', ""),
    "escaped NUL": (rb'{"text": "a\u0000b"}', "a\0b"),
    "surrogate pair": (rb'{"text": "\ud83d\ude00"}', "😀"),
    "duplicate key, the last counts": (rb'{"text": "a", "text": "b"}', "b"),
    "400-digit int elsewhere": (b'{"text": "a", "x": ' + b"9" * 400 + b"}", "a"),
    "5000-digit int elsewhere": (b'{"text": "a", "x": ' + b"9" * 5000 + b"}", "a"),
    "1e999 elsewhere": (rb'{"text": "a", "x": 1e999}', "a"),
    "100 deep elsewhere": (b'{"text": "a", "x": ' + b"[" * 100 + b"]" * 100 + b"}", "a"),
    "U+2028 in the text": ('{"text": "a\u2028b"}'.encode(), "a\u2028b"),
    "leading indentation of the text": (rb'{"text": "    return 1\n"}', "    return 1\n"),
    "indented record": (b' \t {"text": "a"}', "a"),
    "spaces after the record": (b'{"text": "a"} \t', "a"),
    "special token": (rb'{"text": "a<|endoftext|>b"}', "a<|endoftext|>b"),
    "braces in the text": (rb'{"text": "}\n{"}', "}\n{"),
    "BOM inside the text": (b'{"text": "\xef\xbb\xbfa"}', "\ufeffa"),
}

REJECTED = {
    "missing field": (rb'{"id": 1}', "missing-field", "the record has no field 'text'"),
    "no field at all": (rb"{}", "missing-field", "the record has no field 'text'"),
    "missing field beside a 5000-digit int": (
        b'{"x": ' + b"9" * 5000 + b"}",
        "missing-field",
        "the record has no field 'text'",
    ),
    "int": (rb'{"text": 7}', "text-not-a-string", "Expected `str`, got `int` - at `$.text`"),
    "list": (rb'{"text": ["a"]}', "text-not-a-string", "Expected `str`, got `array` - at `$.text`"),
    "null": (rb'{"text": null}', "null-text", "'text' is null"),
    "duplicate key, one not a string": (
        rb'{"text": 7, "text": "a"}',
        "text-not-a-string",
        "Expected `str`, got `int` - at `$.text`",
    ),
    "broken line": (rb'{"text": "a', "invalid-json", None),
    "opening of a record over two lines": (b'{"text": "a",', "invalid-json", None),
    "rest of a record over two lines": (b'"id": 1}', "invalid-json", None),
    "trailing junk": (rb'{"text": "a"} x', "invalid-json", None),
    "a brace too many": (rb'{"text": "a"}}', "invalid-json", None),
    "two records on a line": (rb'{"text": "a"}{"text": "b"}', "invalid-json", None),
    "two records and a carriage return": (b'{"text": "a"}\r{"text": "b"}', "invalid-json", None),
    "invalid UTF-8 in the text": (
        b'{"text": "\xff"}',
        "invalid-utf8",
        "invalid start byte at byte 10 of the record",
    ),
    "invalid UTF-8 in another field": (
        b'{"text": "a", "x": "\xff"}',
        "invalid-utf8",
        "invalid start byte at byte 20 of the record",
    ),
    "surrogate in UTF-8": (b'{"text": "\xed\xa0\x80"}', "invalid-utf8", None),
    "overlong UTF-8": (b'{"text": "\xc0\x80"}', "invalid-utf8", None),
    "lone surrogate": (
        rb'{"text": "\ud800"}',
        "lone-surrogate",
        "an escape encodes half of a surrogate pair",
    ),
    "lone surrogate in another field": (
        rb'{"text": "a", "x": "\udc00"}',
        "lone-surrogate",
        "an escape encodes half of a surrogate pair",
    ),
    "raw NUL": (b'{"text": "a\x00"}', "invalid-json", None),
    "raw NUL in another field": (b'{"text": "a", "x": "\x00"}', "invalid-json", None),
    "raw tab": (b'{"text": "a\t"}', "invalid-json", None),
    "half a string with a brace": (b'{"text": "a", "x": "}', "invalid-json", None),
    "BOM in the middle of a file": (
        b'\xef\xbb\xbf{"text": "a"}',
        "invalid-json",
        None,
    ),
    "NaN": (rb'{"text": "a", "x": NaN}', "invalid-json", None),
    "NaN as text": (rb'{"text": NaN}', "invalid-json", None),
    "2000 deep": (
        b'{"text": "a", "x": ' + b"[" * 2000 + b"]" * 2000 + b"}",
        "invalid-json",
        "nested too deeply",
    ),
    "100,000 deep": (
        b'{"text": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "invalid-json",
        "nested too deeply",
    ),
    "array": (rb'["a"]', "not-an-object", "the record must be a JSON object, got list"),
    "string": (rb'"a"', "not-an-object", "the record must be a JSON object, got str"),
    "number": (rb"7", "not-an-object", "the record must be a JSON object, got int"),
    "null record": (rb"null", "not-an-object", "the record must be a JSON object, got NoneType"),
    "U+2028 alone": ("\u2028".encode(), "invalid-json", None),
    "form feed alone": (b"\x0c", "invalid-json", None),
    "plain text": (b"hello", "invalid-json", None),
}

BLANK = {"empty": b"", "spaces": b"  ", "tab": b"\t", "carriage return": b"\r"}

# Lines that are fine by themselves, but not for a parser that was asked for more than the text.
EXTRA = [
    rb'{"text": "abc", "id": "x", "meta": {"lang": "de"}, "n": 1.50, "spans": [[0, 2]]}',
    rb'{"text": "abc", "id": null, "meta": null, "n": {"b": [1, true]}, "spans": null}',
    rb'{"text": "abc", "meta": {"lang": ["de"]}, "spans": [{"start": 1, "stop": 2}]}',
    rb'{"text": "abc", "spans": [[2, 1]]}',
    rb'{"text": "abc", "spans": "all"}',
    rb'{"text": "abc", "n": 1e999}',
    rb'{"text": "abc", "meta": {"lang": 1e999}}',
    b'{"text": "abc", "n": ' + b"9" * 5000 + b"}",
    rb'{"text": "abc", "id": "\ud800"}',
    rb'{"meta": {"text": "abc", "id": 7, "a": {"b": [1]}}, "n": "1"}',
    rb'{"meta": {"text": "abc", "a": 3}}',
    rb'{"meta": {"text": null}}',
    rb'{"meta": ["text"]}',
]

lines = st.sampled_from(
    [line for line, _ in READ.values()]
    + [line for line, _, _ in REJECTED.values()]
    + list(BLANK.values())
    + EXTRA
)
blocks = st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\n", b"\r\n"])), max_size=8)


def contents(batch: DocumentBatch) -> dict[str, Any]:
    """Everything that a batch holds, in a form that can be compared and joined."""
    return {
        "texts": batch.texts,
        "positions": batch.positions.tolist(),
        "record_bytes": batch.record_bytes.tolist(),
        "ids": batch.ids,
        "columns": batch.columns,
        "no_loss": batch.no_loss,
        "rejected": batch.rejected,
        "blank_bytes": batch.blank_bytes,
        "bom_bytes": batch.bom_bytes,
    }


def joined(batches: list[DocumentBatch]) -> dict[str, Any]:
    """The contents of several batches, one after another."""
    total = contents(batches[0])
    for batch in batches[1:]:
        for name, value in contents(batch).items():
            if name == "columns":
                total[name] = {key: total[name][key] + value[key] for key in value}
            elif value is not None:
                total[name] = total[name] + value
    return total


def num_bytes(batch: DocumentBatch) -> int:
    rejected = sum(item.num_bytes for item in batch.rejected)
    return int(batch.record_bytes.sum()) + rejected + batch.blank_bytes + batch.bom_bytes


@pytest.mark.parametrize(("line", "text"), READ.values(), ids=READ)
def test_a_good_line_is_read_as_it_is(line: bytes, text: str) -> None:
    for end in (b"\n", b"\r\n", b""):
        batch = TEXT.parse(line + end, 100, 3)
        assert contents(batch) == {
            "texts": [text],
            "positions": [100],
            "record_bytes": [len(line + end)],
            "ids": None,
            "columns": {},
            "no_loss": None,
            "rejected": [],
            "blank_bytes": 0,
            "bom_bytes": 0,
        }


@pytest.mark.parametrize(("line", "reason", "detail"), REJECTED.values(), ids=REJECTED)
def test_a_bad_line_is_set_aside_alone_with_its_reason(
    line: bytes, reason: str, detail: str | None
) -> None:
    good = b'{"text": "a"}\n'
    batch = TEXT.parse(good + line + b"\n" + good, 100, 3)
    assert batch.texts == ["a", "a"]
    assert batch.positions.tolist() == [100, 100 + len(good + line + b"\n")]
    (rejection,) = batch.rejected
    assert (rejection.source, rejection.position) == (3, 100 + len(good))
    assert (rejection.num_bytes, rejection.record) == (len(line) + 1, line + b"\n")
    assert rejection.reason == reason
    assert rejection.detail == detail if detail else rejection.detail


@pytest.mark.parametrize("line", BLANK.values(), ids=BLANK)
def test_a_blank_line_is_counted_and_skipped(line: bytes) -> None:
    batch = TEXT.parse(b'{"text": "a"}\n' + line + b"\n", 0, 0)
    assert (batch.texts, batch.rejected, batch.blank_bytes) == (["a"], [], len(line) + 1)


def test_a_byte_order_mark_counts_only_at_the_start_of_a_file() -> None:
    batch = TEXT.parse(BOM + b'{"text": "a"}\n', 0, 0)
    assert (batch.texts, batch.positions.tolist(), batch.bom_bytes) == (["a"], [3], 3)
    later = TEXT.parse(BOM + b'{"text": "a"}\n', 50, 0)
    assert (later.texts, later.bom_bytes) == ([], 0)
    assert [(item.position, item.reason) for item in later.rejected] == [(50, "invalid-json")]


@pytest.mark.parametrize("broken", [b'"}\n{"}', b'\n{"y": 1}}', b"[{}\n{}]}", b"{}\n}"])
def test_a_record_over_two_lines_cannot_hide_behind_two_records_on_one(broken: bytes) -> None:
    """Three lines and up to three records, but not one a line."""
    batch = TEXT.parse(b'{"text": "a", "x": %s\n{"text": "b"}{"text": "c"}\n' % broken, 0, 0)
    assert batch.texts == []
    assert [item.reason for item in batch.rejected] == ["invalid-json"] * 3


@pytest.mark.parametrize("parser", [TEXT, RICH, NESTED], ids=["text", "rich", "nested"])
@given(blocks, st.booleans(), st.booleans())
@settings(deadline=None, max_examples=300)
def test_a_block_is_parsed_as_its_lines_are_one_by_one(
    parser: JsonParser, parts: list[tuple[bytes, bytes]], has_bom: bool, is_open: bool
) -> None:
    whole = [line + end for line, end in parts]
    if whole and is_open:
        whole[-1] = parts[-1][0]  # the last line has no end
    body = b"".join(whole)
    block = BOM + body if has_bom else body
    # Elsewhere than at the start of a file, nothing is taken for a byte order mark.
    batch = parser.parse(block, 0 if has_bom else 100, 1)
    start = 3 if has_bom else 100
    alone = [parser.parse(BOM if has_bom else b"", 0, 1)]
    for line in whole:
        alone.append(parser.parse(line, start, 1))
        start += len(line)
    assert contents(batch) == joined(alone)
    assert num_bytes(batch) == len(block)


@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(deadline=None)
def test_any_text_survives_the_way_through_json(text: str) -> None:
    for ascii_only in (True, False):
        line = json.dumps({"text": text}, ensure_ascii=ascii_only).encode()
        assert TEXT.parse(line + b"\n", 0, 0).texts == [text]


@given(st.lists(st.binary(max_size=12), max_size=6).map(b"\n".join))
@settings(deadline=None)
def test_the_bytes_of_any_rubbish_add_up(block: bytes) -> None:
    assert num_bytes(TEXT.parse(block, 0, 0)) == len(block)


def test_ids_and_kept_columns_hold_strings_null_and_other_values_as_json() -> None:
    parser = JsonParser(Fields(id="meta.id", keep=("lang", "meta", "meta.x.y")))
    batch = parser.parse(
        """{"text": "a", "lang": "de", "meta": {"id": "i-1", "x": {"y": [1, "é"]}}}
{"text": "b", "lang": null, "meta": {"id": 7, "x": {"y": 1.50}}}
{"text": "c", "lang": true, "meta": "none"}
{"text": "d"}
""".encode(),
        0,
        0,
    )
    assert batch.texts == ["a", "b", "c", "d"]
    assert batch.ids == ["i-1", "7", None, None]
    assert batch.columns == {
        "lang": ["de", None, "true", None],
        "meta": [
            '{"id":"i-1","x":{"y":[1,"é"]}}',
            '{"id":7,"x":{"y":1.5}}',
            "none",
            None,
        ],
        "meta.x.y": ['[1,"é"]', "1.5", None, None],
    }


def test_the_text_may_lie_deep_inside_a_record() -> None:
    parser = JsonParser(Fields(text="data.body.text", id="data.id", keep=("data.body.lang",)))
    batch = parser.parse(
        b'{"data": {"id": 1, "body": {"text": "a", "lang": "de"}}}\n'
        b'{"data": {"id": 2, "body": null}}\n'
        b'{"data": {"id": 3, "body": {"text": null}}}\n'
        b'{"body": {"text": "b"}}\n',
        0,
        0,
    )
    assert (batch.texts, batch.ids, batch.columns) == (["a"], ["1"], {"data.body.lang": ["de"]})
    assert [(item.reason, item.detail) for item in batch.rejected] == [
        ("missing-field", "the record has no field 'data.body.text'"),
        ("null-text", "'data.body.text' is null"),
        ("missing-field", "the record has no field 'data.body.text'"),
    ]


def test_the_text_itself_can_be_kept_and_has_nothing_below_it() -> None:
    batch = JsonParser(Fields(keep=("text", "text.x"))).parse(rb'{"text": "a"}', 0, 0)
    assert batch.columns == {"text": ["a"], "text.x": [None]}


def test_a_field_that_holds_the_text_cannot_be_kept_whole() -> None:
    with pytest.raises(UserError, match="cannot keep the field 'meta'"):
        Fields(text="meta.text", keep=("meta",))


def test_a_number_that_cannot_be_kept_sets_its_line_aside() -> None:
    parser = JsonParser(Fields(keep=("n",)))
    batch = parser.parse(b'{"text": "a", "n": 1}\n{"text": "b", "n": 1e999}\n', 0, 0)
    assert (batch.texts, batch.columns) == (["a"], {"n": ["1"]})
    assert [(item.reason, item.detail) for item in batch.rejected] == [
        ("number-out-of-range", "'n': Number out of range")
    ]


def test_spans_without_loss_are_read_and_bad_ones_set_their_line_aside() -> None:
    parser = JsonParser(Fields(no_loss="s"))
    good = {
        b"null": [],
        b"[]": [],
        b"[[0, 2], [3, 3]]": [(0, 2), (3, 3)],
        b'[{"start": 1, "stop": 4}]': [(1, 4)],
        b'[{"stop": 4, "start": 1}]': [(1, 4)],
    }
    bad = [
        b"7", b'"all"', b"[[0]]", b"[[0, 1, 2]]", b"[0, 1]", b"[[2, 1]]", b"[[-1, 1]]",
        b"[[0, 1.5]]", b"[[false, true]]", b'[["0", "1"]]', b'[{"stop": 2, "begin": 5}]',
        b"[null]", b"{}",
    ]  # fmt: skip
    line = b'{"text": "abcd", "s": %s}\n'
    batch = parser.parse(b"".join(line % spans for spans in [*good, *bad]), 0, 0)
    assert batch.no_loss == list(good.values())
    assert [item.record for item in batch.rejected] == [line % spans for spans in bad]
    assert {(item.reason, item.detail) for item in batch.rejected} == {
        ("invalid-spans", "not a list of [start, stop) character ranges")
    }

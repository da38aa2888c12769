"""The fields that the first records have, and how their values become columns."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from records_kit import source_of
from tokenmill.core.errors import UserError
from tokenmill.read.fields import Fields, require_field
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.values import column_value, walk


@pytest.mark.parametrize(
    ("value", "column"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, None),
        (True, "true"),
        (7, "7"),
        (10**30, "1" + "0" * 30),
        (1.5, "1.5"),
        ([1, None, "é"], '[1,null,"é"]'),
        ({"b": 1, "a": {}}, '{"b":1,"a":{}}'),
    ],
)
def test_strings_stay_null_stays_and_the_rest_becomes_json(
    value: object, column: str | None
) -> None:
    assert column_value(value) == column


def test_a_path_that_ends_early_leads_to_null() -> None:
    record = {"a": {"b": [1]}}
    assert walk(record, ["a", "b"]) == [1]
    assert walk(record, []) == record
    assert [walk(record, path) for path in (["x"], ["a", "x"], ["a", "b", "c"])] == [None] * 3


def test_extra_fields_are_named_once_each_in_a_fixed_order() -> None:
    fields = Fields(id="id", no_loss="spans", keep=("url", "id", "lang", "url"))
    assert fields.extra == ("id", "spans", "url", "lang")


@pytest.mark.parametrize(
    ("name", "present", "hint"),
    [
        (
            "text",
            {"messages", "id"},
            "are these conversations? Add --chat messages, or --text-field NAME for texts",
        ),
        (
            "text",
            {"prompt", "completion"},
            "are these conversations? Add --chat prompt-completion, or --text-field NAME for texts",
        ),
        ("text", {"prompt", "texts"}, "did you mean --text-field texts?"),
        (
            "text",
            {"body", "id"},
            "add --text-field NAME, with the name of the field that holds the text; if it differs "
            "between inputs, --text-field GLOB=NAME for each of them",
        ),
        ("contents", {"content", "id"}, "did you mean content?"),
        ("Body-Text", {"body_text", "id"}, "did you mean body_text?"),
        (
            "meta.lang",
            {"meta", "id"},
            (
                "choose one of these; if the text field differs between inputs, --text-field "
                "GLOB=NAME for each of them; in --keep and --by, write 'NAME?' if some records "
                "lack the field"
            ),
        ),
    ],
)
def test_a_missing_field_is_reported_with_the_fields_and_the_nearest_name(
    name: str, present: set[str], hint: str
) -> None:
    with pytest.raises(UserError) as caught:
        require_field(name, present, "a.jsonl")
    assert str(caught.value) == (
        f"cannot find the field {name!r} in the first records\n"
        "  where: a.jsonl\n"
        f"  why: the fields are {', '.join(sorted(present))}\n"
        f"  next: {hint}"
    )


def test_of_many_fields_the_first_are_shown() -> None:
    present = {f"f{number:02}" for number in range(25)}
    with pytest.raises(UserError) as caught:
        require_field("text", present, "a.jsonl")
    assert caught.value.why.endswith(", f18, f19 and 5 more")


def fields_of(path: Path, data: bytes) -> set[str]:
    return FORMATS["jsonl"].check_fields(source_of(path, data), Fields())


def test_fields_are_named_with_the_paths_to_them(tmp_path: Path) -> None:
    data = b'{"text": "a", "meta": {"id": 1, "x": {"y": []}}}\n{"url": null}\n'
    expected = {"text", "meta", "meta.id", "meta.x", "meta.x.y", "url"}
    assert fields_of(tmp_path / "a.jsonl", data) == expected
    assert fields_of(tmp_path / "b.jsonl", gzip.compress(data)) == expected


def test_bad_lines_are_passed_over(tmp_path: Path) -> None:
    bad = b'\xff\n{"a": \n' + b"[" * 5000 + b'\n[1]\n\n{"text": "a"}\n'
    assert fields_of(tmp_path / "a.jsonl", bad) == {"text"}
    assert fields_of(tmp_path / "b.jsonl", b"nothing\n") == set()

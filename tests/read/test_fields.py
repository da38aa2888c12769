"""How a value becomes a column."""

from __future__ import annotations

import pytest

from tokenmill.errors import UserError
from tokenmill.read.fields import Fields, require_field
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
    ("present", "begins"),
    [
        ({"messages", "id"}, "are these conversations? --chat messages reads them; or name"),
        (
            {"prompt", "completion"},
            "are these conversations? --chat prompt-completion reads them; or name",
        ),
        ({"prompt", "texts"}, "did you mean 'texts'? name"),
    ],
)
def test_records_of_conversations_get_a_hint_about_chat(present: set[str], begins: str) -> None:
    with pytest.raises(UserError, match="cannot find the field 'text'") as caught:
        require_field("text", present, "a.jsonl")
    assert (caught.value.hint or "").startswith(begins)

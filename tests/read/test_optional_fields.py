"""A field that is kept as NAME? may be missing from the first records, or from a file's schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import tokenmill
from tokenmill.core.errors import UserError
from tokenmill.read import units

TEXTS = [f"document {number}" for number in range(150)]


def write_lines(path: Path, languages: list[str | None]) -> None:
    records = [
        {"text": text} | ({"meta": {"lang": language}} if language else {})
        for text, language in zip(TEXTS, languages, strict=True)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_parquet(path: Path, languages: list[str | None]) -> None:
    pq.write_table(table_of(languages), path)


def write_arrow(path: Path, languages: list[str | None]) -> None:
    pyarrow.feather.write_feather(table_of(languages), path)


def write_stream(path: Path, languages: list[str | None]) -> None:
    table = table_of(languages)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def table_of(languages: list[str | None]) -> pa.Table:
    meta = [{"lang": language} for language in languages]
    return pa.table({"text": TEXTS} | ({"meta": meta} if any(languages) else {}))


NONE: list[str | None] = [None] * 150
LATE: list[str | None] = [None] * 120 + ["de"] * 30


@pytest.mark.parametrize("write", [write_lines, write_parquet, write_arrow, write_stream])
def test_an_optional_field_is_null_where_it_is_missing(
    write: Callable[[Path, list[str | None]], None],
    tmp_path: Path,
    tokenizer_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 1000)
    data = tmp_path / "data"
    data.mkdir()
    write(data / "a", NONE)
    write(data / "b", LATE)
    report = tokenmill.build(
        str(data), tokenizer_path, tmp_path / "out", workers=1, keep=["meta.lang?"]
    )
    dataset = report.dataset
    assert dataset.manifest.policies["read"]["keep"] == ["meta.lang?"]
    found = [
        value
        for shard in sorted((tmp_path / "out").rglob("*.parquet"))
        for value in pq.read_table(shard).column("column.meta.lang").to_pylist()
    ]
    assert found == NONE + LATE


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (write_lines, "the field 'meta.lang' in the first records"),
        (write_parquet, "cannot find the column 'meta.lang'"),
    ],
)
def test_a_field_that_is_not_optional_is_refused_with_a_hint(
    write: Callable[[Path, list[str | None]], None],
    what: str,
    tmp_path: Path,
    tokenizer_path: Path,
) -> None:
    write(tmp_path / "a", NONE)
    with pytest.raises(UserError, match=what) as caught:
        tokenmill.build(
            str(tmp_path / "a"), tokenizer_path, tmp_path / "out", workers=1, keep=["meta.lang"]
        )
    assert caught.value.hint == (
        "choose one of these; if the text field differs between inputs, --text-field GLOB=NAME for "
        "each of them; in --keep and --by, write 'NAME?' if some records lack the field"
    )


def test_an_id_that_is_also_kept_is_not_optional() -> None:
    recipe = tokenmill.recipe("a", "t", "out", keep=["id?", "x?"], id_field="id")
    assert recipe.read.fields.optional == {"x"}
    assert recipe.read.fields.keep == ("id", "x")

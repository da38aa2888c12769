"""A text made of several fields, from the shell to a verified dataset and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import documents

import tokenmill
from tokenmill.cli import main
from tokenmill.core.errors import OutputConflictError, UserError

RECORDS = [{"title": f"Title {n}", "body": f"the body {n}"} for n in range(6)]
TEMPLATE = "{title}\n\n{body}"
TEXTS = [f"Title {n}\n\nthe body {n}" for n in range(6)]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in RECORDS))
    return path


def test_a_shell_writes_line_ends_as_backslash_n(
    lines: Path, tokenizer_path: Path, reference: Callable[[str], list[int]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    template = r"{title}\n\n{body}"
    arguments = [str(lines), "--tokenizer", str(tokenizer_path), "--out", str(out)]
    assert main(["build", *arguments, "--text-template", template, "--workers", "1"]) == 0
    dataset = tokenmill.open(out)
    assert dataset.policies.read.text_template == TEMPLATE
    eos = dataset.manifest.tokenizer.eos_id
    assert documents(out) == [[*reference(text), eos] for text in TEXTS]
    assert main(["verify", str(out), "--against-sources"]) == 0


def test_rows_and_lines_give_the_same_documents_and_both_resume(
    lines: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    table = tmp_path / "b.parquet"
    pq.write_table(pa.Table.from_pylist(RECORDS), table)
    options: dict[str, Any] = {"text_template": TEMPLATE, "workers": 1}
    first = tokenmill.build(lines, tokenizer_path, tmp_path / "lines", **options)
    second = tokenmill.build(table, tokenizer_path, tmp_path / "rows", **options)
    assert documents(tmp_path / "lines") == documents(tmp_path / "rows")
    assert (first.manifest.totals.records, second.manifest.totals.document_bytes) == (
        6,
        sum(map(len, TEXTS)),
    )
    tokenmill.verify(tmp_path / "rows", against_sources=True)
    table.touch()
    assert tokenmill.build(table, tokenizer_path, tmp_path / "rows", **options).snapshot is None
    with pytest.raises(OutputConflictError, match="other"):
        tokenmill.build(table, tokenizer_path, tmp_path / "rows", text_template="{body}")


def test_words_are_counted_of_the_same_texts(lines: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"split": "gpt2", "workers": 1}
    tokenmill.count_words(lines, tmp_path / "counts", text_template=TEMPLATE, **options)
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    tokenmill.count_words(plain, tmp_path / "expected", **options)
    counts, expected = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / name).rglob("*.npy"))}
        for name in ("counts", "expected")
    )
    assert counts == expected
    assert counts


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"text_template": "{title"}, "expected '}'"),
        ({"text_template": "no field"}, "contains no field"),
        ({"text_template": "{title!r}"}, "only contain the name of a field"),
        ({"text_template": "{title}", "text_field": "body"}, "read.text_field"),
        (
            {"text_template": "{title}", "no_loss": "spans"},
            "the text is built from the whole record",
        ),
    ],
)
def test_templates_that_cannot_be_meant(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError) as caught:
        tokenmill.recipe("a.jsonl", "gpt2", "out", **options)
    assert why in str(caught.value) + caught.value.why

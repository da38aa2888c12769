"""CSV, TSV, JSON arrays and WET files are built like the same records in JSON Lines."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import documents
from msgspec import UNSET

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import DataError, OutputConflictError, UserError
from tokenmill.read import units

TEXTS = [f'text {number}, "{"é" * (number % 50)}"\nin two lines' for number in range(300)]
FILES = ("a.jsonl", "b.csv", "c.tsv.gz", "d.json", "e.json", "f.warc.wet.gz")


def write_all(folder: Path) -> Path:
    """The same records in each format."""
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", TEXTS)
    with open(folder / "b.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([text] for text in TEXTS)])
    with gzip.open(folder / "c.tsv.gz", "wt", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t").writerows([["text"], *([text] for text in TEXTS)])
    records = [{"text": text} for text in TEXTS]
    (folder / "d.json").write_text(json.dumps(records))
    (folder / "e.json").write_text(json.dumps(records, indent=2))
    pages = [
        gzip.compress(
            b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n"
            % (len(text.encode()), text.encode())
        )
        for text in TEXTS
    ]
    (folder / "f.warc.wet.gz").write_bytes(b"".join(pages))
    return folder


def test_every_format_gives_the_same_documents_in_parts_too(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_all(tmp_path / "data")
    tokenmill.build(data, tokenizer_path, tmp_path / "whole", workers=1)
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 4 << 10)
    monkeypatch.setattr(units, "PIECE_BYTES", 1 << 10)
    parts = tokenmill.build(data, tokenizer_path, tmp_path / "parts", workers=1)
    sources = parts.dataset.manifest.sources
    assert [source.name for source in sources] == list(FILES)
    assert [source.counts.documents for source in sources] == [len(TEXTS)] * len(FILES)
    assert len(parts.dataset.manifest.shards) > 2 * len(FILES)
    ids = documents(tmp_path / "parts")
    assert ids == documents(tmp_path / "whole")
    assert ids == ids[: len(TEXTS)] * len(FILES)
    tokenmill.verify(tmp_path / "parts", against_sources=True)
    estimate = tokenmill.estimate(data, tokenizer_path)
    assert estimate.documents == len(TEXTS) * len(FILES)


def test_text_and_records_with_different_text_fields_make_one_dataset(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_jsonl(data / "a.jsonl", TEXTS, lang=["en"] * len(TEXTS))
    (data / "book.txt").write_text(TEXTS[0])
    rows = [["id", "body"], *([number, text] for number, text in enumerate(TEXTS))]
    with open(data / "forum.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    pq.write_table(pa.table({"text": ["no"] * len(TEXTS), "body": TEXTS}), data / "forum.parquet")
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 4 << 10)
    options: dict[str, Any] = {
        "text_field": ["text", "forum.*=body"],
        "format": ["*.txt=text"],
        "keep": ["lang?"],
    }

    def build(**other: Any) -> tokenmill.BuildReport:
        given = {"workers": 1, **options, **other}
        return tokenmill.build(data, tokenizer_path, tmp_path / "out", **given)

    with pytest.raises(UserError, match="cannot find the column 'text'"):
        build(text_field="text")
    dataset = build().dataset
    sources = dataset.manifest.sources
    assert [each.text_field for each in sources] == [UNSET, UNSET, "body", "body"]
    assert [each.counts.documents for each in sources] == [300, 1, 300, 300]
    ids = documents(tmp_path / "out")
    assert ids == [*ids[:300], ids[0], *ids[:300], *ids[:300]]
    (data / "forum.csv").touch()
    assert build().dataset.manifest.dataset_id == dataset.manifest.dataset_id
    with pytest.raises(OutputConflictError, match=r"policies\.read\.text_field"):
        build(text_field=["text", "forum.*=text"])
    assert tokenmill.verify(tmp_path / "out", against_sources=True).compared_documents == 901
    assert tokenmill.estimate(data, tokenizer_path, **options).documents == 901
    text = {"format": options["format"], "text_field": options["text_field"]}
    for inputs, other in ((data, text), (tmp_path / "out", {})):
        out = tmp_path / f"counts of {inputs.name}"
        counted = tokenmill.count_words(inputs, out, split="gpt2", workers=1, **other)
        assert counted.counts.manifest.totals.documents == 901
    stream = tokenmill.TextStream(
        [str(data)],
        str(tokenizer_path),
        tokenmill.TextStreamOptions(sequence_length=64, global_batch_size=4, dropout=0.1, **text),
    )
    assert next(stream).ids.shape == (4, 64)


def test_a_bad_row_costs_itself_and_a_resumed_build_encodes_nothing_again(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1,good\n2\n")
    with pytest.raises(DataError, match="1 of 2 records are bad") as raised:
        tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1)
    assert raised.value.where.startswith("the first is a.csv, position 15: ragged-row, ")
    assert raised.value.hint.startswith(f"look at {tmp_path / 'out'}/rejected/*.jsonl, then run")
    assert "--max-bad 50.5000%: nothing is encoded again" in raised.value.hint
    assert not (tmp_path / "out" / "manifest.json").exists()
    report = tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1, max_bad=0.505)
    assert (report.dataset.num_documents, len(report.run.attempts)) == (1, 2)
    totals = report.dataset.manifest.totals
    assert (totals.record_bytes, totals.blank_bytes) == (7 + 2, 8)

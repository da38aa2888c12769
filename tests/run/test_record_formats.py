"""CSV, TSV, JSON arrays and WET files are built like the same records in JSON Lines."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from corpora import documents

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import DataError
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

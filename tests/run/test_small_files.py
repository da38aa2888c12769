"""Many small files are encoded and written together, and no byte depends on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import contents

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import DataError
from tokenmill.core.records import DocumentBatch
from tokenmill.read import documents
from tokenmill.read.documents import grouped


def write_texts(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:04d}.txt").write_text(f"document {number}\n")
    return folder


def write_records(folder: Path) -> Path:
    """60 files of 0 to 2 records, some of them bad, blank or empty."""
    folder.mkdir()
    for number in range(60):
        texts = ["", f"text {number}", f"text {number} again"][: number % 4]
        ids = [None, f"id {number}", "z"][: len(texts)]
        path = write_jsonl(folder / f"{number:02d}.jsonl", texts, id=ids)
        if number % 7 == 0:
            path.write_bytes(path.read_bytes() + b'\n{"text": 5}\n')
    return folder


def batch(source: int, *texts: str) -> DocumentBatch:
    zeros = np.zeros(len(texts), np.int64)
    return DocumentBatch(source, list(texts), zeros, zeros)


def sources(groups: list[list[DocumentBatch]]) -> list[list[int]]:
    return [[batch.source for batch in group] for group in groups]


def test_batches_are_grouped_until_they_fill_half_a_batch() -> None:
    batches = [batch(0, "aa", "a"), batch(1, "aa"), batch(2, "a" * 99), batch(3, "a")]
    assert sources(list(grouped(batches, 10))) == [[0, 1], [2], [3]]
    assert sources(list(grouped(batches, 0))) == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    "options",
    [{}, {"max_documents": 25}, {"max_tokens": 300}, {"validation": 0.3, "id_field": "id"}],
)
def test_grouping_changes_no_byte_of_a_dataset(
    options: dict[str, Any], tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_records(tmp_path / "data")
    options |= {"workers": 1, "max_bad": 0.5, "keep": ["id"]}
    tokenmill.build(data, tokenizer_path, tmp_path / "together", **options)
    monkeypatch.setattr(documents, "MAX_GROUPED_BATCHES", 1)
    tokenmill.build(data, tokenizer_path, tmp_path / "alone", **options)
    assert contents(tmp_path / "together") == contents(tmp_path / "alone")


def test_an_error_names_the_file_among_small_ones(tmp_path: Path, tokenizer_path: Path) -> None:
    data = write_texts(tmp_path / "data", 5)
    (data / "0003.txt").write_text("one <|endoftext|> too many")
    with pytest.raises(DataError) as caught:
        tokenmill.build(data, tokenizer_path, tmp_path / "out", workers=1, special_tokens="error")
    assert caught.value.where == "0003.txt, position 0"


PEAK = """
import tokenmill.run.progress as progress
board = progress.ProgressBoard(1, 2, [])
board.refresh(force=True)
before = board.peak_bytes
del (_ := bytearray(b"x") * 300_000_000)[:]
del _
board.refresh(force=True)
print(board.snapshot().peak_bytes - before)
"""


def test_the_peak_counts_what_was_needed_between_two_measurements() -> None:
    result = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert 250_000_000 < int(result.stdout) < 400_000_000

"""Estimates come close to what a build does; inspect shows what is there."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from corpora import write_corpus

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import UserError
from tokenmill.reports.inspect import Piece


@pytest.mark.parametrize("compressed", [False, True])
def test_an_estimate_comes_close_to_the_build(
    compressed: bool, tmp_path: Path, tokenizer_path: Path
) -> None:
    paths = write_corpus(tmp_path / "data", num_files=2, per_file=3000)
    if compressed:
        for path in paths:
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    found = tokenmill.estimate(tmp_path / "data", tokenizer_path, workers=1)
    assert not list(tmp_path.glob("*(not written)*"))
    report = tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    totals = report.dataset.manifest.totals
    assert found.tokens == pytest.approx(totals.tokens, rel=0.1)
    assert found.documents == pytest.approx(totals.records, rel=0.1)
    size = sum(file.bytes for file in report.dataset.manifest.files if "tokens/" in file.name)
    assert found.disk_bytes == pytest.approx(size, rel=0.2)


def test_a_document_is_shown_with_its_boundaries_apart(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["The quick", "lazy dog"])
    tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1)
    view = tokenmill.view_document(tmp_path / "out", 1)
    assert [(piece.text, piece.boundary) for piece in view.pieces] == [
        ("lazy dog", False),
        ("<|endoftext|>", True),
    ]
    assert view.pieces[1] == Piece("<|endoftext|>", [0], boundary=True)
    with pytest.raises(UserError, match="has 2 documents"):
        tokenmill.view_document(tmp_path / "out", 2)


def test_an_estimate_samples_many_small_files(tmp_path: Path, tokenizer_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(40):
        (tmp_path / "data" / f"{number:02d}.txt").write_text("word " * number + "end")
    found = tokenmill.estimate(tmp_path / "data", tokenizer_path, workers=1)
    assert (found.sample_documents, found.documents) == (40, 40)

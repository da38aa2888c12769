"""Estimates come close to what a build does; inspect shows what is there."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpora import write_corpus

import tokenmill
from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import StorageError, UserError
from tokenmill.core.values import size_text
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


def test_a_document_is_shown_from_its_start_and_its_text_without_loss_is_marked(
    tmp_path: Path, tokenizer_path: Path, capsys: Printed
) -> None:
    texts = ["secret word", "a b " * 400]
    path = write_jsonl(tmp_path / "a.jsonl", texts, mask=[[[0, 6]], []])
    dataset = tokenmill.build(
        path, tokenizer_path, tmp_path / "out", workers=1, no_loss="mask"
    ).dataset
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "out"), "--document", "0"]) == 0
    assert capsys.readouterr().out.partition("\n\n")[2] == (
        "⟪secret⟫ word⟦<|endoftext|>⟧\n\n⟪no loss⟫\n"
    )
    assert main(["inspect", str(tmp_path / "out"), "--document", "1"]) == 0
    more = dataset.shards[0].lengths[1] - 500
    end = f"\n\n... {more:,} more tokens: add --all to see the whole document\n"
    assert capsys.readouterr().out.endswith(end)
    assert main(["inspect", str(tmp_path / "out"), "--document", "1", "--all"]) == 0
    assert f"{texts[1]}⟦<|endoftext|>⟧\n" in capsys.readouterr().out


def test_reports_are_printed_on_one_line(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    out = tmp_path / "out"
    report = tokenmill.build(path, tokenizer_path, out, workers=1)
    tokens = report.dataset.num_tokens
    assert repr(report) == f"<BuildReport {str(out)!r}: 2 documents, {tokens} tokens, 0 rejected>"
    plan = tokenmill.pack(out, sequence_length=64)
    fill = f"{tokens / 64:.2%}"
    assert repr(plan) == f"<PlanReport '{out}/plans/best-fit-64': 1 sequence, {fill} full>"
    found = tokenmill.analyze(out, sequence_lengths=[64, 128])
    assert repr(found) == (
        f"<Analysis of {str(out)!r}: 2 documents, {tokens} tokens; sequence lengths 64, 128>"
    )
    pytest.importorskip("torch", reason="PyTorch is not installed")
    loader = report.dataset.loader(batch_size=1)
    assert repr(loader) == "<Loader: 1 step, rank 0 of 1>"


def test_an_estimate_samples_many_small_files(tmp_path: Path, tokenizer_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(40):
        (tmp_path / "data" / f"{number:02d}.txt").write_text("word " * number + "end")
    found = tokenmill.estimate(tmp_path / "data", tokenizer_path, workers=1)
    assert (found.sample_documents, found.documents) == (40, 40)


def test_a_dataset_that_cannot_fit_on_the_disk_is_refused_before_it_is_built(
    tmp_path: Path,
    tokenizer_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["The quick brown fox " * 50] * 1000)
    found = tokenmill.estimate(path, tokenizer_path)
    needed = f"the dataset needs about {size_text(found.disk_bytes)}"
    out = tmp_path / "out"

    def build(free: int, out: Path = out, **options: Any) -> list[str]:
        disk = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: disk)
        caplog.clear()
        tokenmill.build(path, tokenizer_path, out, workers=1, **options)
        return caplog.messages

    with pytest.raises(StorageError) as caught:
        build(20_000)
    assert str(caught.value) == (
        f"not enough disk space\n  where: {out}\n  why: {needed}, and 20 kB are free\n"
        "  next: free some space, or choose a folder on another disk with --out"
    )
    assert build(20_000, tmp_path / "few", max_documents=10) == []
    assert build(found.disk_bytes) == [
        f"the disk may become full: {needed}, and {size_text(found.disk_bytes)} are free"
    ]
    assert build(0) == []  # it is complete
    assert build(2 * found.disk_bytes, tmp_path / "other") == []


def test_free_space_is_estimated_only_if_there_is_little(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenmill.reports.estimate.estimate", None)
    path = write_jsonl(tmp_path / "a.jsonl", ["The quick brown fox"])
    tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1)

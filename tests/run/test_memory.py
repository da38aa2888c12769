"""Memory stays within what is promised, and does not grow with the input."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpora import tokenmill, write_corpus

import tokenmill as library
from tokenmill.report.contents import stored_run


def peak_bytes(data: Path, tokenizer: Path, out: Path, *options: str) -> int:
    result = tokenmill("build", data, "--tokenizer", tokenizer, "--out", out, *options, small=False)
    assert result.returncode == 0, result.stderr
    return stored_run(library.open(out)).peak_bytes


def test_a_budget_of_512_megabytes_is_kept(tmp_path: Path, tokenizer_path: Path) -> None:
    write_corpus(tmp_path / "data", num_files=4, per_file=40_000)
    budget = ["--memory", "512MiB", "--workers", "2"]
    peak = peak_bytes(tmp_path / "data", tokenizer_path, tmp_path / "out", *budget)
    assert 0 < peak < 512 << 20


@pytest.mark.soak
def test_ten_times_the_input_takes_no_more_memory(tmp_path: Path, tokenizer_path: Path) -> None:
    write_corpus(tmp_path / "data-1", num_files=4, per_file=100_000)
    write_corpus(tmp_path / "data-10", num_files=40, per_file=100_000)
    once = peak_bytes(tmp_path / "data-1", tokenizer_path, tmp_path / "out-1")
    tenfold = peak_bytes(tmp_path / "data-10", tokenizer_path, tmp_path / "out-10")
    assert tenfold < 1.15 * once

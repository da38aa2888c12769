"""Memory stays within what is promised, and does not grow with the input."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from corpora import tokenmill, write_corpus

import tokenmill as library
from conftest import write_jsonl
from tokenmill.reports.contents import stored_run

HUNGRY = """
class Hungry:
    vocab_size = 300

    def encode(self, text):
        if len(text) > 400_000:  # more than what is sampled
            raise MemoryError
        return [byte + 1 for byte in text.encode()]

def make():
    return Hungry()
"""

CIRCULAR = """
class Cycle:
    alive = 0

    def __init__(self, text):
        self.me, self.text = self, text
        Cycle.alive += 1

    def __del__(self):
        Cycle.alive -= 1

class Circular:
    vocab_size = 300

    def encode(self, text):
        Cycle(text)
        if Cycle.alive > 5_000:
            raise MemoryError
        return [byte + 1 for byte in text.encode()]

def make():
    return Circular()
"""


def peak_bytes(data: Path, tokenizer: Path, out: Path, *options: str) -> int:
    result = tokenmill("build", data, "--tokenizer", tokenizer, "--out", out, *options, small=False)
    assert result.returncode == 0, result.stderr
    return stored_run(library.open(out)).peak_bytes


def test_a_budget_of_512_megabytes_is_kept(tmp_path: Path, tokenizer_path: Path) -> None:
    write_corpus(tmp_path / "data", num_files=4, per_file=40_000)
    budget = ["--memory", "512MiB", "--workers", "2"]
    peak = peak_bytes(tmp_path / "data", tokenizer_path, tmp_path / "out", *budget)
    assert 0 < peak < 512 << 20


def built_with(
    source: str, data: Path, folder: Path, workers: int
) -> subprocess.CompletedProcess[str]:
    """Build with a tokenizer in Python, of which `source` is the module."""
    (folder / "own.py").write_text(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        options = ["--tokenizer", "python:own:make", "--out", folder / "out", "--eos", "0"]
        return tokenmill("build", data, *options, "--workers", workers, small=False)


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_that_runs_out_while_encoding_names_file_and_place(
    workers: int, tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["short", "a" * 500_000])
    result = built_with(HUNGRY, path, tmp_path, workers)
    assert result.returncode == 7, result.stderr
    assert "not enough memory to encode a document" in result.stderr
    assert f"where: {path}, at or after position 18" in result.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_texts_that_a_tokenizer_leaves_in_reference_cycles_are_freed(
    workers: int, tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [f"document {i}" for i in range(12_000)])
    result = built_with(CIRCULAR, path, tmp_path, workers)
    assert result.returncode == 0, result.stderr


@pytest.mark.soak
def test_ten_times_the_input_takes_no_more_memory(tmp_path: Path, tokenizer_path: Path) -> None:
    write_corpus(tmp_path / "data-1", num_files=4, per_file=100_000)
    write_corpus(tmp_path / "data-10", num_files=40, per_file=100_000)
    once = peak_bytes(tmp_path / "data-1", tokenizer_path, tmp_path / "out-1")
    tenfold = peak_bytes(tmp_path / "data-10", tokenizer_path, tmp_path / "out-10")
    assert tenfold < 1.15 * once

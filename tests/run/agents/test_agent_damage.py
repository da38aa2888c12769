"""Agents that meet damaged files: none waits for ever for what another has given up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from corpora import contents, write_corpus

QUICK_AGENTS = Path(__file__).parents[1] / "quick_agents.py"
TIMEOUT_SECONDS = 100


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files, two of which are no gzip after their first bytes; each agent is dealt one."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, num_files=2, per_file=200)
    for number in (2, 3):
        (folder / f"part-{number}.jsonl.gz").write_bytes(b"\x1f\x8b\x08" + bytes(100_000))
    return folder


def build(corpus: Path, tokenizer: Path, out: Path, count: int, *options: str) -> Sequence[int]:
    """Build with so many agents; their exit codes."""
    command = [sys.executable, str(QUICK_AGENTS), "build", str(corpus), "--workers", "1"]
    command += ["--tokenizer", str(tokenizer), "--out", str(out), *options]
    agents = [
        subprocess.Popen([*command, "--agent", f"{index}/{count}"], stdout=subprocess.DEVNULL)
        for index in range(count)
    ]
    try:
        return [agent.wait(TIMEOUT_SECONDS) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()


def test_damaged_files_end_every_agent(corpus: Path, tokenizer_path: Path, tmp_path: Path) -> None:
    assert build(corpus, tokenizer_path, tmp_path / "out", 2) == [3, 3]
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_damaged_files_are_left_out_by_two_agents_as_by_one(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    quarantine = ("--on-bad-file", "quarantine")
    assert build(corpus, tokenizer_path, tmp_path / "one", 1, *quarantine) == [0]
    assert build(corpus, tokenizer_path, tmp_path / "two", 2, *quarantine) == [0, 0]
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert not (tmp_path / "two" / "work").exists()

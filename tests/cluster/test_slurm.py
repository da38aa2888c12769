"""Builds on a Slurm cluster of three nodes: nodes die, jobs are cancelled, the bytes are equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from corpora import write_corpus
from slurm_lab import SlurmLab

from tokenmill.cli import main

pytestmark = pytest.mark.cluster


def submit(out: Path, corpus: Path, tokenizer: Path, agents: int, *options: str) -> list[str]:
    """Start a build on the cluster."""
    inputs = ["build", str(corpus), "--tokenizer", str(tokenizer), "--out", str(out)]
    return [*inputs, "--on", "slurm", "--agents", str(agents), *options]


def test_more_agents_than_the_cluster_takes_are_refused(
    slurm: SlurmLab, tmp_path: Path, tokenizer_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=3)
    command = submit(tmp_path / "out", tmp_path / "data", tokenizer_path, agents=41)
    assert main(command) == 2
    assert "41 agents are more than this Slurm takes in one array" in capsys.readouterr().err
    assert not (tmp_path / "out.slurm").exists()


def test_what_slurm_refuses_is_told(
    slurm: SlurmLab, tmp_path: Path, tokenizer_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=3)
    command = submit(tmp_path / "out", tmp_path / "data", tokenizer_path, 2, "--slurm=-p nowhere")
    assert main(command) == 2
    assert "sbatch refused: sbatch: error: invalid partition" in capsys.readouterr().err


def test_the_finishing_job_waits_for_the_array(
    slurm: SlurmLab, tmp_path: Path, tokenizer_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=3)
    command = submit(tmp_path / "out", tmp_path / "data", tokenizer_path, 3)
    assert main(command) == 0
    array, finish = re.findall(r"array (\d+) of 3 agents, then job (\d+)", capsys.readouterr().err)[
        0
    ]
    slurm.wait_for_end(array, finish)
    assert {job["JobState"] for job in slurm.jobs(finish)} == {"COMPLETED"}
    assert (tmp_path / "out" / "manifest.json").is_file()

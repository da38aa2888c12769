"""Builds on a Slurm cluster of three nodes: nodes die, jobs are cancelled, the bytes are equal."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpora import write_corpus
from slurm_lab import SlurmLab

from tokenmill.cli import main

pytestmark = pytest.mark.cluster


def submit(out: Path, corpus: Path, tokenizer: Path, agents: int, *options: str) -> list[str]:
    """The command line that starts a build on the cluster."""
    inputs = ["build", str(corpus), "--tokenizer", str(tokenizer), "--out", str(out)]
    return [*inputs, "--on", "slurm", "--agents", str(agents), *options]


def submitted(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The ids of the array and of the finishing job that were told."""
    found = re.search(r"array (\d+) of 3 agents, then job (\d+)", capsys.readouterr().err)
    assert found is not None
    return found[1], found[2]


def test_more_agents_than_the_cluster_takes_are_refused(
    slurm: SlurmLab, tmp_path: Path, tokenizer_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=3)
    command = submit(tmp_path / "out", tmp_path / "data", tokenizer_path, agents=41)
    assert main(command) == 2
    assert "41 agents are more than this Slurm allows in one array" in capsys.readouterr().err
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
    array, finish = submitted(capsys)
    slurm.wait_for_end(array, finish)
    assert {job["JobState"] for job in slurm.jobs(finish)} == {"COMPLETED"}
    assert (tmp_path / "out" / "manifest.json").is_file()


@pytest.fixture
def apart(slurm: SlurmLab, tmp_path: Path) -> Iterator[Path]:
    """An output that n2 sees as another folder."""
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    other.mkdir()
    mount = f'mount --bind "{other}" "{out}" && exec "$@"'
    within = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    if subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("a mount namespace cannot be made here")
    slurm.kill_daemon("n2")
    slurm.start_node("n2", within)
    slurm.make_idle()
    yield out
    slurm.kill_node("n2")


def test_an_agent_on_a_machine_that_does_not_share_the_folder_is_refused(
    slurm: SlurmLab,
    apart: Path,
    tmp_path: Path,
    tokenizer_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Row 24: it would build the whole dataset for itself."""
    write_corpus(tmp_path / "data", num_files=3, per_file=50)
    assert main(submit(apart, tmp_path / "data", tokenizer_path, 3)) == 0
    array, finish = submitted(capsys)
    slurm.wait_for_end(array, finish)
    ends = {job["NodeList"]: job["ExitCode"] for job in slurm.jobs(array)}
    assert ends == {"n1": "0:0", "n2": "4:0", "n3": "0:0"}
    logs = "".join(path.read_text() for path in (tmp_path / "out.slurm" / "logs").iterdir())
    assert "the output is not the one that this agent was started for" in logs
    assert (apart / "manifest.json").is_file()

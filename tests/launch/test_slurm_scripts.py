"""The sbatch files of a build say what the user asked for, and can be read."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from tokenmill.cli import main
from tokenmill.core.errors import UserError
from tokenmill.run.launch import LaunchRequest, launch
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.slurm import write_scripts


def request(out: str = "corpus", slurm: str | None = None) -> LaunchRequest:
    command = ("build", "a b.jsonl", "--tokenizer", "t.json", "--out", out)
    recipe = Recipe(inputs=["a b.jsonl"], tokenizer="t.json", out=out)
    return LaunchRequest(
        where="slurm",
        recipe=recipe,
        command=command,
        num_agents=4,
        options={"slurm": slurm},
        say=print,
    )


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_array_is_the_command_of_the_user_with_a_shard(tmp_path: Path) -> None:
    agents, _ = write_scripts(request(slurm="-p cpu --time=8:00:00"), 4, "5f1e")
    assert agents == tmp_path / "corpus.slurm" / "agents.sbatch"
    assert (
        agents.read_text()
        == f"""\
#!/bin/bash
# 4 agents of one build, one per machine. Written by tokenmill.
# Submit it as often as you like, with any size: sbatch {tmp_path}/corpus.slurm/agents.sbatch
#SBATCH --job-name=tokenmill-corpus
#SBATCH --array=0-3
#SBATCH --nodes=1 --ntasks=1 --exclusive
#SBATCH --requeue --open-mode=append
#SBATCH --signal=B:TERM@120
#SBATCH --chdir={tmp_path}
#SBATCH --output={tmp_path}/corpus.slurm/logs/%A_%a.log
#SBATCH -p cpu --time=8:00:00

# Refuse to work on a machine that does not share the output:
export TOKENMILL_JOB=5f1e
exec {sys.executable} -m tokenmill build 'a b.jsonl' \\
    --tokenizer t.json \\
    --out corpus \\
    --agent auto
"""
    )


def test_the_finishing_job_is_the_command_itself(tmp_path: Path) -> None:
    text = write_scripts(request(), 4, "5f1e")[1].read_text()
    assert text.endswith(f"""\
#SBATCH --output={tmp_path}/corpus.slurm/logs/finish-%j.log

# Refuse to work on a machine that does not share the output:
export TOKENMILL_JOB=5f1e
exec {sys.executable} -m tokenmill build 'a b.jsonl' \\
    --tokenizer t.json \\
    --out corpus
""")


def test_an_agent_that_asks_for_cores_does_not_ask_for_the_whole_machine() -> None:
    assert "--exclusive" not in write_scripts(request(slurm="-c 8"), 4, "5f1e")[0].read_text()


def test_scripts_of_a_bucket_are_in_the_current_folder(tmp_path: Path) -> None:
    assert (
        write_scripts(request("s3://bucket/a/corpus/"), 4, "5f1e")[0].parent
        == tmp_path / "corpus.slurm"
    )


def test_a_path_with_percent_and_spaces_reaches_slurm_as_it_is(tmp_path: Path) -> None:
    text = write_scripts(request(str(tmp_path / "50% off")), 4, "5f1e")[0].read_text()
    assert f"#SBATCH --output='{tmp_path}/50%% off.slurm/logs/%A_%a.log'" in text
    assert "#SBATCH --job-name='tokenmill-50% off'" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--array=0-3", "--slurm cannot set --array: the build sets it"),
        ("-d afterok:1", "--slurm cannot set -d: the build sets it"),
        ("--comment='x", "cannot be read: No closing quotation"),
        ("--comment='x\ny'", "a line break cannot be written into an sbatch file"),
    ],
)
def test_options_that_break_the_array_are_refused(options: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_scripts(request(slurm=options), 4, "5f1e")


@pytest.mark.parametrize("where", ["slrum", "slurm://here"])
def test_a_launcher_that_does_not_exist_is_refused(where: str) -> None:
    with pytest.raises(UserError, match="did you mean slurm"):
        launch(dataclasses.replace(request(), where=where))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--on", "slurm"], "--on slurm needs --agents N"),
        (["--on", "slurm", "--agents", "0"], "--agents: got '0'; must be"),
        (["--on", "slurm", "--cpus-per-agent", "2"], "can only be used with --on ray"),
        (["--on", "ray", "--cpus-per-agent", "0"], "--cpus-per-agent: got '0'; must be"),
        (["--on", "ray", "--slurm=-p x"], "--slurm can only be used with --on slurm"),
        (["--cpus-per-agent", "2"], "--cpus-per-agent can only be used with --on"),
        (["--on", "slurm", "--agents", "2"], "scontrol is not installed here"),
        (["--on", "slurm", "--agents", "2", "--overwrite"], "--overwrite cannot be combined"),
        (["--agents", "2", "--slurm=-p x"], "--agents and --slurm can only be used with --on"),
    ],
)
def test_what_cannot_be_launched_is_refused_at_once(
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["build", "a.jsonl", "--tokenizer", "t.json", "--out", "corpus", *options]) == 2
    assert message in capsys.readouterr().err

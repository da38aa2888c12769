"""Builds on Slurm, with an array of agents and a job that finishes what they leave.

Both are sbatch files in `OUT.slurm/`, which you can read, edit and submit by hand. Slurm only
starts the agents. If a node fails, its task is queued again and resumes. A task that is cancelled
or reaches its time limit stops within seconds and leaves its work to the others. The finishing job
starts when all tasks of the array have ended, for whatever reason. It runs the same command as a
single agent, and usually finds that the dataset is complete.

Source: the pages sbatch, scontrol and job_array of Slurm's documentation.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenmill.core.errors import StorageError, UserError
from tokenmill.run.agreement import JOB_VARIABLE
from tokenmill.run.launch import LaunchRequest
from tokenmill.run.pipeline import begin
from tokenmill.store.files import storage_errors

STOP_SECONDS = 120
"""How long before its time limit an agent gets the signal to stop. Slurm may send it 60 s late."""

OWN_OPTIONS = ("--array", "-a", "--dependency", "-d", "--signal")
"""Options of sbatch that the files set themselves. Other values would break them."""

SCRIPT = """\
#!/bin/bash
# {what} Written by tokenmill.
# {by_hand}
#SBATCH --job-name={name}
{array}#SBATCH --nodes=1 --ntasks=1{whole_node}
#SBATCH --requeue --open-mode=append
#SBATCH --signal=B:TERM@{stop_seconds}
#SBATCH --chdir={folder}
#SBATCH --output={log}
{extra}
# Refuse to work on a machine that does not share the output:
export {job}
exec {command}
"""


def launch(request: LaunchRequest) -> None:
    """Write and submit the two sbatch files, and show the commands to watch and stop the build.

    Raises:
        UserError: Slurm is not installed, refuses the jobs, or does not allow this many agents.
        StorageError: the files cannot be written.
    """
    if request.where != "slurm":
        raise UserError(f"invalid value of --on: {request.where!r}", hint="did you mean slurm?")
    num_agents = request.num_agents
    if num_agents is None:
        raise UserError("--on slurm needs --agents N, the number of machines")
    largest = _largest_array()
    if num_agents > largest:
        raise UserError(
            f"{num_agents:,} agents are more than this Slurm allows in one array",
            why=f"its MaxArraySize is {largest:,}",
            hint=f"--agents {largest}; an agent uses all cores of its machine",
        )
    job = begin(request.recipe)
    if not job:
        request.say(f"the build is finished: the dataset is in {request.recipe.out}")
        return
    agents, rest = write_scripts(request, num_agents, job)
    array = _submitted(agents)
    finish = _submitted(rest, f"--dependency=afterany:{array}")
    out = request.recipe.out
    for line in (
        f"{'submitted':>12}  array {array} of {num_agents:,} agents, then job {finish} to finish",
        f"{'scripts':>12}  {agents}, {rest}",
        f"{'logs':>12}  {agents.with_name('logs')}",
        f"{'watch':>12}  {shlex.join(['tokenmill', 'status', out])}",
        f"{'':>12}  squeue -j {array},{finish}",
        f"{'stop':>12}  scancel {finish} {array}; the same command resumes",
    ):
        request.say(line)


def write_scripts(request: LaunchRequest, num_agents: int, job: str) -> tuple[Path, Path]:
    """Write and return the sbatch files of the agents and of the finishing job.

    Agents check that the output holds `job`, so they fail on a machine that does not share it.

    Raises:
        UserError: the sbatch options cannot be parsed, or a path cannot be written into the files.
        StorageError: the files cannot be written.
    """
    folder = _folder_of(request.recipe.out)
    files = folder / "agents.sbatch", folder / "finish.sbatch"
    extra = _extra_options(str(request.options.get("slurm") or ""))
    logs = str(folder / "logs").replace("%", "%%")
    name, agent = f"tokenmill-{folder.stem}", [sys.executable, "-m", "tokenmill", *request.command]
    values = {
        "stop_seconds": STOP_SECONDS,
        "folder": _word(str(Path.cwd())),
        "whole_node": "" if _asks_for_cpus(extra) else " --exclusive",
        "job": f"{JOB_VARIABLE}={job}",
        "extra": f"#SBATCH {shlex.join(extra)}\n" if extra else "",
    }
    agents = SCRIPT.format(
        what=f"{num_agents} agents of one build, one per machine.",
        by_hand="Submit it as often as you like, with any size: sbatch "
        + shlex.quote(str(files[0])),
        name=_word(name),
        array=f"#SBATCH --array=0-{num_agents - 1}\n",
        log=_word(f"{logs}/%A_%a.log"),
        command=_in_lines([*agent, "--agent", "auto"]),
        **values,
    )
    finish = SCRIPT.format(
        what="One agent that finishes what the array leaves.",
        by_hand="To submit it by hand: sbatch --dependency=afterany:ARRAY "
        + shlex.quote(str(files[1])),
        name=_word(f"{name}-finish"),
        array="",
        log=_word(f"{logs}/finish-%j.log"),
        command=_in_lines(agent),
        **values,
    )
    with storage_errors("write the sbatch files", folder):
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, (agents, finish), strict=True):
            file.write_text(text)
    return files


def _folder_of(out: str) -> Path:
    """Return `corpus.slurm` next to a folder `corpus`, or in the current folder for a bucket."""
    if "://" in out:
        return Path.cwd() / f"{out.rstrip('/').rpartition('/')[2]}.slurm"
    path = Path(out).expanduser().absolute()
    return path.with_name(f"{path.name}.slurm")


def _extra_options(text: str) -> list[str]:
    try:
        extra = shlex.split(text)
    except ValueError as error:
        raise UserError(f"--slurm {text!r} cannot be read: {error}") from error
    for word in extra:
        if word.partition("=")[0] in OWN_OPTIONS:
            raise UserError(f"--slurm cannot set {word.partition('=')[0]}: the build sets it")
        _word(word)
    return extra


def _asks_for_cpus(options: Sequence[str]) -> bool:
    words = ("--cpus-per-task", "-c", "--exclusive", "--mincpus", "--oversubscribe", "-s")
    return any(option.partition("=")[0] in words for option in options)


def _word(text: str) -> str:
    """Quote a word for a line of #SBATCH."""
    if re.search(r"[\n\r]", text):
        raise UserError("a line break cannot be written into an sbatch file", where=text)
    return shlex.quote(text)


def _in_lines(command: Sequence[str]) -> str:
    """Return a command with each option on its own line."""
    return " ".join(
        f"\\\n    {shlex.quote(word)}" if word.startswith("--") else shlex.quote(word)
        for word in command
    )


def _largest_array() -> int:
    """Return the largest number of tasks in an array."""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", _run("scontrol", "show", "config"))
    if found is None:
        raise UserError("scontrol show config does not list MaxArraySize")
    return int(found[1])


def _submitted(script: Path, *options: str) -> str:
    """Submit a job and return its id."""
    return _run("sbatch", "--parsable", *options, str(script)).strip().partition(";")[0]


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    except FileNotFoundError as error:
        raise UserError(
            f"{command[0]} is not installed here",
            why="--on slurm submits jobs",
            hint="run it on a login node of the cluster",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise StorageError(f"{command[0]} did not answer within {error.timeout:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise UserError(
            f"{command[0]} refused: {error.stderr.strip()}", hint=f"it ran: {shlex.join(command)}"
        ) from error
    return done.stdout

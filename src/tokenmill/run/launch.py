"""Agents of one build on many machines: the share of each, and the launchers that start them.

A launcher only starts processes. It keeps no state that the build needs, so any agent can die, and
so can the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.suggestions import did_you_mean
from tokenmill.run.recipe.options import Recipe

AUTO = "auto"
MAX_COUNT = 1_000_000
_PAIRS = (
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"),
    ("AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE"),
    ("CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT"),
    ("BATCH_TASK_INDEX", "BATCH_TASK_COUNT"),
)
"""Variables of launchers that start one process per task: the index from 0, and the count."""
_HINT = "use i/n, with i from 0 to n - 1"


@dataclass(frozen=True, slots=True)
class AgentShare:
    """Agent `index` of `count`, counted from 0."""

    index: int
    count: int
    place: str = ""
    """A name that stays the same when this agent is restarted. By default the index."""

    def __post_init__(self) -> None:
        if not self.place:
            object.__setattr__(self, "place", f"{self.index:05d}")

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_agent(text: str, environ: Mapping[str, str], noun: str = "agent") -> AgentShare:
    """Read a share: "i/n", or "auto" to use the environment variables of a launcher.

    "auto" supports Slurm job arrays and steps with several tasks, indexed jobs of Kubernetes (set
    JOB_COMPLETIONS in the pods), array jobs of AWS Batch, Cloud Run jobs, Google Batch, and RANK
    with WORLD_SIZE if each machine runs one process. `noun` names a share in errors.

    Raises:
        UserError: the text is not a share, its index is not below the count, or no launcher has set
            its variables.
    """
    if text == AUTO:
        share = _found(environ)
    elif parts := re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text):
        share = AgentShare(int(parts[1]), int(parts[2]))
    else:
        raise UserError(f"invalid {noun} {text!r}", hint=f"{_HINT}, or auto")
    if not share.index < share.count <= MAX_COUNT:
        last = f"the last of {share.count} {noun}s is {share.count - 1}/{share.count}"
        raise UserError(
            f"invalid {noun} {share}",
            why=f"the index counts from 0, and there are at most {MAX_COUNT:,} {noun}s",
            hint=last if 0 < share.count <= MAX_COUNT else _HINT,
        )
    return share


def _found(environ: Mapping[str, str]) -> AgentShare:
    if "SLURM_ARRAY_TASK_ID" in environ:
        return _of_slurm_array(environ)
    for index, count in _PAIRS:
        if index in environ:
            return AgentShare(_number(environ, index), _number(environ, count))
    if _number(environ, "SLURM_STEP_NUM_TASKS", 1) > 1:
        return _one_a_machine(
            environ, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES"
        )
    if "RANK" in environ and "WORLD_SIZE" in environ:
        if _number(environ, "LOCAL_WORLD_SIZE", 1) > 1:
            raise _several_a_machine("LOCAL_WORLD_SIZE")
        return AgentShare(_number(environ, "RANK"), _number(environ, "WORLD_SIZE"))
    raise UserError(
        "auto found no launcher",
        why="none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, AWS_BATCH_JOB_ARRAY_INDEX, "
        "CLOUD_RUN_TASK_INDEX, BATCH_TASK_INDEX, RANK is set, and srun has not started several "
        "tasks",
        hint=_HINT,
    )


def _of_slurm_array(environ: Mapping[str, str]) -> AgentShare:
    """Return the share of a Slurm array task.

    Task ids may not begin at 0. The position in an array of arbitrary ids such as `3,17` is
    unknown, so such an array counts as one from 0 to its last id.
    """
    task = _number(environ, "SLURM_ARRAY_TASK_ID")
    first = _number(environ, "SLURM_ARRAY_TASK_MIN", 0)
    last = _number(environ, "SLURM_ARRAY_TASK_MAX")
    count = _number(environ, "SLURM_ARRAY_TASK_COUNT")
    step = _number(environ, "SLURM_ARRAY_TASK_STEP", 1) or 1
    place = f"{task:05d}"
    if last - first == step * (count - 1) and (task - first) % step == 0:
        return AgentShare((task - first) // step, count, place)
    return AgentShare(task, last + 1, place)


def _one_a_machine(environ: Mapping[str, str], index: str, count: str, nodes: str) -> AgentShare:
    if _number(environ, count) > _number(environ, nodes):
        raise _several_a_machine(f"{count} is larger than {nodes}")
    return AgentShare(_number(environ, index), _number(environ, count))


def _several_a_machine(why: str) -> UserError:
    hint = "start one process per machine (srun --ntasks-per-node=1): it uses all cores"
    return UserError("auto found several processes on this machine", why=why, hint=hint)


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text):
        why = f"{name} is {text!r}" if text else f"{name} is not set"
        hint = f"set {name}, or {_HINT}" if not text else _HINT
        raise UserError("auto cannot tell which agent this is", why=why, hint=hint)
    return int(text)


LAUNCHERS = {"slurm": "tokenmill.run.slurm", "ray": "tokenmill.run.ray"}
"""The module of each launcher, by the name or scheme in `--on`. It has a function `launch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """The build that a launcher starts, and its options."""

    where: str
    """The value of `--on`: `slurm`, `ray` or `ray://ADDRESS`."""
    recipe: Recipe
    command: tuple[str, ...]
    """`build INPUT ... --out OUT`: the command line of an agent, without launcher options."""
    num_agents: int | None
    """The number of agents, one per machine. None lets the launcher decide."""
    options: dict[str, Any]
    """Options of single launchers, by name."""
    say: Callable[[str], None]
    """Shows a line to the user."""


def launch(request: LaunchRequest) -> None:
    """Start the agents.

    Raises:
        UserError: there is no such launcher, or the cluster refuses the request or cannot be
            reached.
    """
    name = request.where.partition("://")[0]
    if name not in LAUNCHERS:
        raise UserError(
            f"invalid value of --on: {request.where!r}",
            why=f"choose from {', '.join(LAUNCHERS)}",
            hint=did_you_mean(name, LAUNCHERS),
        )
    import_module(LAUNCHERS[name]).launch(request)

"""The share of an agent: `--agent i/n`, or the environment variables of a launcher."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tokenmill.core.errors import UserError

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
class Share:
    """Agent `index` of `count`, counted from 0.

    Raises:
        UserError: the index is not below the count.
    """

    index: int
    count: int
    place: str = ""
    """A name that stays the same when this agent is restarted. By default the index."""

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count <= MAX_COUNT:
            raise UserError(
                f"invalid agent {self.index}/{self.count}",
                why=f"the index counts from 0, and there are at most {MAX_COUNT:,} agents",
                hint=f"the last of {self.count} agents is {self.count - 1}/{self.count}"
                if 0 < self.count <= MAX_COUNT
                else _HINT,
            )
        if not self.place:
            object.__setattr__(self, "place", f"{self.index:05d}")

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_agent(text: str, environ: Mapping[str, str]) -> Share:
    """Read a share: "i/n", or "auto" to use the environment variables of a launcher.

    "auto" supports Slurm job arrays and steps with several tasks, indexed jobs of Kubernetes (set
    JOB_COMPLETIONS in the pods), array jobs of AWS Batch, Cloud Run jobs, Google Batch, and RANK
    with WORLD_SIZE if each machine runs one process.

    Raises:
        UserError: the text is not a share, or no launcher has set its variables.
    """
    if text == AUTO:
        return _found(environ)
    parts = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if parts is None:
        raise UserError(f"invalid agent {text!r}", hint=f"{_HINT}, or auto")
    return Share(int(parts[1]), int(parts[2]))


def _found(environ: Mapping[str, str]) -> Share:
    if "SLURM_ARRAY_TASK_ID" in environ:
        return _of_slurm_array(environ)
    for index, count in _PAIRS:
        if index in environ:
            return Share(_number(environ, index), _number(environ, count))
    if _number(environ, "SLURM_STEP_NUM_TASKS", 1) > 1:
        return _one_a_machine(
            environ, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES"
        )
    if "RANK" in environ and "WORLD_SIZE" in environ:
        if _number(environ, "LOCAL_WORLD_SIZE", 1) > 1:
            raise _several_a_machine("LOCAL_WORLD_SIZE")
        return Share(_number(environ, "RANK"), _number(environ, "WORLD_SIZE"))
    raise UserError(
        "auto found no launcher",
        why="none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, AWS_BATCH_JOB_ARRAY_INDEX, "
        "CLOUD_RUN_TASK_INDEX, BATCH_TASK_INDEX, RANK is set, and srun has not started several "
        "tasks",
        hint=_HINT,
    )


def _of_slurm_array(environ: Mapping[str, str]) -> Share:
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
        return Share((task - first) // step, count, place)
    return Share(task, last + 1, place)


def _one_a_machine(environ: Mapping[str, str], index: str, count: str, nodes: str) -> Share:
    if _number(environ, count) > _number(environ, nodes):
        raise _several_a_machine(f"{count} is larger than {nodes}")
    return Share(_number(environ, index), _number(environ, count))


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

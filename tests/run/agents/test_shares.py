"""Shares from the command line, and from what launchers leave in variables."""

from __future__ import annotations

import pytest

from tokenmill.core.errors import UserError
from tokenmill.run.launch import AgentShare, parse_agent


def slurm(task: int, first: int, last: int, count: int, **others: str) -> dict[str, str]:
    names = {"ID": task, "MIN": first, "MAX": last, "COUNT": count}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in names.items()} | others


def test_a_share_is_counted_from_zero() -> None:
    assert parse_agent("3/10", {}) == AgentShare(3, 10, "00003")
    assert str(AgentShare(3, 10)) == "3/10"


@pytest.mark.parametrize("text", ["10/10", "0/0", "0/9999999", "", "3", "a/b", "-1/3", "1/3/5"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="agent"):
        parse_agent(text, {})


@pytest.mark.parametrize(
    ("environ", "share"),
    [
        (slurm(3, 0, 9, 10), AgentShare(3, 10, "00003")),
        (slurm(10, 1, 10, 10), AgentShare(9, 10, "00010")),
        (slurm(6, 2, 10, 3, SLURM_ARRAY_TASK_STEP="4"), AgentShare(1, 3, "00006")),
        (slurm(17, 3, 17, 2), AgentShare(17, 18, "00017")),
        ({"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "8"}, AgentShare(2, 8)),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "1", "AWS_BATCH_JOB_ARRAY_SIZE": "4"}, AgentShare(1, 4)),
        ({"CLOUD_RUN_TASK_INDEX": "0", "CLOUD_RUN_TASK_COUNT": "4"}, AgentShare(0, 4)),
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NUM_NODES": "3"},
            AgentShare(1, 3),
        ),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}, AgentShare(1, 2)),
    ],
)
def test_auto_reads_what_the_launcher_left(environ: dict[str, str], share: AgentShare) -> None:
    assert parse_agent("auto", environ) == share


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({}, "found no launcher"),
        ({"JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETIONS is not set"),
        ({"SLURM_ARRAY_TASK_ID": "x"}, "SLURM_ARRAY_TASK_ID is 'x'"),
        ({"RANK": "1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, "several processes"),
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "2"},
            "several processes",
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "found no launcher"),
    ],
)
def test_auto_says_what_it_misses(environ: dict[str, str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        parse_agent("auto", environ)

"""Losses of trainers' logs, and the steps where they jump."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.core.errors import UserError
from tokenmill.reports.losses import BEFORE, FEWEST, Losses, Spike, find_spikes, read_losses

LOGS = {
    "json lines": '{"step": 1, "loss": 2.5}\n{"loss": 2.25, "step": 2}\n\n{"step": 4, "loss": 2}\n',
    "history of W&B": (
        '{"_step": 0, "global_step": 1, "train/loss": 2.5, "_runtime": 1.5}\n'
        '{"_step": 1, "global_step": 2, "train/loss": 2.25}\n'
        '{"_step": 2, "global_step": 4, "train/loss": 2.0}\n'
    ),
    "export of W&B": (
        '"Step","glad-sun-7 - train/loss","glad-sun-7 - train/loss__MIN",'
        '"glad-sun-7 - train/loss__MAX"\n'
        '"1","2.5","2.5","2.5"\n"2","2.25","2.25","2.25"\n"4","2","2","2"\n'
    ),
    "export of TensorBoard": "Wall time,Step,Value\r\n1.5,1,2.5\r\n2.5,2,2.25\r\n3.5,4,2\r\n",
    "marked": "\ufeffstep,loss\n1,2.5\n2,2.25\n4,2\n",
}


@pytest.mark.parametrize("text", LOGS.values(), ids=LOGS)
def test_logs_of_trainers_are_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(text.encode())
    found = read_losses(path, 0, 10)
    assert found.by_step == {1: 2.5, 2: 2.25, 4: 2.0}
    assert read_losses(path, 1, 2) == Losses({0: 2.5, 1: 2.25}, outside=1)
    assert (found.without, found.bad, found.repeated, found.outside) == (0, [], 0, 0)


def test_what_is_no_loss_is_counted_and_said(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(
        '{"step": 1, "loss": 3}\n{"step": 1, "eval_loss": 3}\n[1]\n{oh\n{"step": 1.5, "loss": 3}\n'
        '{"step": 2, "loss": "x"}\n{"step": 1, "loss": NaN}\n{"step": -1, "loss": 1}\n'
    )
    found = read_losses(path, 0, 10)
    assert [*found.by_step] == [1]
    assert math.isnan(found.by_step[1])
    assert (found.without, found.repeated, found.outside) == (1, 1, 1)
    assert [line.partition(": ")[0] for line in found.bad] == [
        "line 3", "line 4", "line 5", "line 6",
    ]  # fmt: skip
    assert found.bad[3] == "line 6: step 2 and loss 'x'"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the log has no losses of the run"),
        ("a,b\n1,2\n", "the log has no losses of the run"),
        ("Step,a - loss,b - loss\n1,2,3\n", "the CSV has several runs"),
        ('{"epoch": 1}\n', "the log has no losses of the run"),
        ("step,loss\n99,1\n1\n", "the log has no losses of the run"),
    ],
)
def test_a_file_without_losses_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(UserError, match=problem):
        read_losses(path, 0, 10)
    with pytest.raises(UserError, match="cannot find the losses"):
        read_losses(tmp_path / "none", 0, 10)


def spikes_of(losses: list[float], every: int = 1) -> list[Spike]:
    return find_spikes(Losses({at * every: loss for at, loss in enumerate(losses)}))


def test_losses_in_a_row_are_one_spike_and_the_largest_comes_first() -> None:
    losses = [2.0, 2.1, 1.9] * 10
    losses[12:14] = [4.0, 5.0]
    losses[20] = 9.0
    losses[25] = math.nan
    found = spikes_of(losses, every=10)
    assert [(each.step, each.loss, each.steps) for each in found if not math.isnan(each.loss)] == [
        (200, 9.0, range(191, 201)),
        (130, 5.0, range(111, 131)),
    ]
    assert found[0].steps == range(241, 251)
    assert math.isnan(found[0].loss)
    assert found[1].median == 2.0
    assert found[1].score == pytest.approx(7 / (0.1 * 1.4826))


def test_equal_and_first_losses_have_no_spikes() -> None:
    assert spikes_of([2.0] * 300) == []
    assert spikes_of([9.0, 1.0] * (FEWEST // 2)) == []
    assert spikes_of([]) == []


@given(st.lists(st.sampled_from([1.0, 1.1, 1.2, 5.0, 6.0]), max_size=3 * BEFORE))
def test_spikes_follow_the_rule(losses: list[float]) -> None:
    expected = set()
    for at in range(FEWEST, len(losses)):
        before = np.array(losses[max(at - BEFORE, 0) : at])
        median = np.median(before)
        deviation = max(1.4826 * np.median(np.abs(before - median)), 1e-3 * median)
        if losses[at] - median >= 6 * deviation:
            expected.add(at)
    found = [step for each in spikes_of(losses) for step in each.steps]
    assert sorted(found) == sorted(expected)

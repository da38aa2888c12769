"""Curricula: every batch against a model, states that are taken up again, rows cut shorter."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import UserError
from tokenmill.core.records import FloatArray
from tokenmill.kernels.rows import REAL, RESTART, TARGET
from tokenmill.load.rows.reader import Rows
from tokenmill.load.steps.curriculum import Curriculum, Phase, shortened

KEYS = {
    "length": [5.0, 3.0, 8.0, 1.0, 9.0, 2.0, 7.0, 4.0, 6.0, 0.0],
    "depth": [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 1.0, 2.0, 3.0, 1.0],
}


def keys(name: str) -> FloatArray:
    return np.array(KEYS[name])


def curriculum_of(*phases: Phase, batch_size: int = 2) -> Curriculum:
    """Of ten sequences, whose shuffled order is 3 1 4 0 5 9 2 6 8 7."""
    order = np.array([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])
    return Curriculum(order, keys, batch_size, phases or (Phase(),))


def batches(curriculum: Curriculum) -> list[list[int]]:
    return [curriculum.batch(step).tolist() for step in range(curriculum.num_steps)]


@pytest.mark.parametrize("step", [-1, 5, 10**9])
def test_a_step_outside_the_epoch_is_refused(step: int) -> None:
    with pytest.raises(UserError) as caught:
        curriculum_of().batch(step)
    assert caught.value.what == f"step {step} does not exist"
    assert caught.value.why == "the epoch has 5 steps of 2 sequences"


@pytest.mark.parametrize(
    ("phases", "what"),
    [
        ([Phase(first_step=1)], "a phase starts at the wrong step"),
        ([Phase(first_step=-1)], "a phase starts at the wrong step"),
        ([Phase(), Phase()], "a phase starts at the wrong step"),
        ([Phase(), Phase(first_step=3), Phase(first_step=3)], "a phase starts at the wrong step"),
        ([Phase(), Phase(first_step=3), Phase(first_step=2)], "a phase starts at the wrong step"),
        ([Phase(bands=0)], "bands and row_length of a phase must be at least 1"),
        ([Phase(row_length=0)], "bands and row_length of a phase must be at least 1"),
    ],
)
def test_wrong_phases_are_refused(phases: list[Phase], what: str) -> None:
    with pytest.raises(UserError) as caught:
        curriculum_of(*phases)
    assert caught.value.what == what


# States.


def saved(curriculum: Curriculum) -> dict[str, Any]:
    """The state as it comes back from a checkpoint."""
    state: dict[str, Any] = json.loads(json.dumps(curriculum.state_dict()))
    return state


def test_a_state_is_the_phases_and_what_they_belong_to() -> None:
    curriculum = curriculum_of(Phase(by="length", bands=3), Phase(first_step=2, row_length=64))
    first = {"by": "length", "descending": False, "bands": 3, "row_length": None}
    second = {"by": None, "descending": False, "bands": 100, "row_length": 64}
    assert saved(curriculum) == {
        "version": 1,
        "batch_size": 2,
        "order": "c5b85ed79c4beae2",
        "phases": [{"first_step": 0, **first}, {"first_step": 2, **second}],
    }


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"batch_size": 3},
        {"order": "0" * 16},
        {"phases": []},
        {"phases": None},
        {"phases": [{"first_step": "0"}]},
        {"phases": [{"first_step": 0, "unknown": 1}]},
        {"phases": [{"first_step": 5}]},
        {"phases": [{"first_step": 0}, {"first_step": 0}]},
        {"phases": [{"bands": 0}]},
    ],
)
def test_a_state_that_is_refused_changes_nothing(change: dict[str, Any]) -> None:
    curriculum = curriculum_of(Phase(by="length", bands=10))
    before = batches(curriculum)
    with pytest.raises(UserError):
        curriculum.load_state_dict({**saved(curriculum), **change})
    assert curriculum.num_steps == 5
    assert batches(curriculum) == before


# Any phases.


def model_banded(order: list[int], values: list[float], bands: int) -> list[int]:
    by_key = sorted(order, key=lambda sequence: values[sequence])
    parts: list[list[int]] = [[] for _ in range(bands)]
    for rank, sequence in enumerate(by_key):
        parts[rank * bands // len(order)].append(sequence)
    return [sequence for part in parts for sequence in order if sequence in part]


def model_batches(
    order: list[int], values: dict[str, list[float]], phases: list[Phase], batch_size: int
) -> list[list[int]]:
    """Step by step: at each phase, what is left is put in order anew."""
    left: list[int] = []
    found = []
    used: set[int] = set()
    for step in range(len(order) // batch_size):
        for phase in phases:
            if phase.first_step == step:
                left = [sequence for sequence in order if sequence not in used]
                if phase.by is not None:
                    sign = -1 if phase.descending else 1
                    signed = [sign * value for value in values[phase.by]]
                    left = model_banded(left, signed, phase.bands)
        found.append(left[:batch_size])
        used.update(left[:batch_size])
        left = left[batch_size:]
    return found


@st.composite
def phase_lists(draw: st.DrawFn) -> list[Phase]:
    """A first phase, and some at later steps, a few of them after the end."""
    later = draw(st.lists(st.integers(1, 22), unique=True, max_size=4))
    return [
        Phase(
            first_step=step,
            by=draw(st.sampled_from([None, "length", "depth"])),
            descending=draw(st.booleans()),
            bands=draw(st.sampled_from([1, 2, 3, 7, 100])),
            row_length=draw(st.sampled_from([None, 8, 16])),
        )
        for step in [0, *sorted(later)]
    ]


def case(seed: int, num_sequences: int) -> tuple[list[int], dict[str, list[float]]]:
    source = random.Random(seed)
    values = {
        "length": [source.randint(0, 50) / 4 for _ in range(num_sequences)],
        "depth": [float(source.randint(1, 4)) for _ in range(num_sequences)],
    }
    return source.sample(range(num_sequences), num_sequences), values


@settings(deadline=None)
@given(phases=phase_lists(), seed=st.integers(0, 99), size=st.integers(1, 45), at=st.integers(1, 4))
def test_every_batch_is_that_of_the_model(
    phases: list[Phase], seed: int, size: int, at: int
) -> None:
    order, values = case(seed, size)
    curriculum = Curriculum(np.array(order), lambda name: np.array(values[name]), at, tuple(phases))
    found = batches(curriculum)
    assert found == model_batches(order, values, phases, at)
    flat = [sequence for batch in found for sequence in batch]
    assert len(flat) == len(set(flat)) == size // at * at
    backwards = [curriculum.batch(step).tolist() for step in reversed(range(curriculum.num_steps))]
    assert backwards[::-1] == found


@settings(deadline=None, max_examples=50)
@given(phases=phase_lists(), seed=st.integers(0, 99), size=st.integers(1, 45), at=st.integers(1, 4))
def test_a_run_that_is_resumed_at_any_step_goes_on_with_the_same_batches(
    phases: list[Phase], seed: int, size: int, at: int
) -> None:
    order, values = case(seed, size)

    def fresh() -> Curriculum:
        return Curriculum(np.array(order), lambda name: np.array(values[name]), at)

    def changed_at(curriculum: Curriculum, step: int) -> None:
        for phase in phases[1:]:
            if phase.first_step == step:
                curriculum.change(phase)

    running = fresh()
    running.load_state_dict({**running.state_dict(), "phases": [json_of(phases[0])]})
    expected = model_batches(order, values, phases, at)
    for step in range(running.num_steps):
        changed_at(running, step)
        assert running.batch(step).tolist() == expected[step]
        resumed = fresh()
        resumed.load_state_dict(saved(running))
        assert resumed.state_dict() == running.state_dict()
        for later in range(step, running.num_steps):
            if later > step:
                changed_at(resumed, later)
            assert resumed.batch(later).tolist() == expected[later]
            assert resumed.row_length(later) == row_length_of(phases, later)


def json_of(phase: Phase) -> dict[str, Any]:
    return {name: getattr(phase, name) for name in phase.__struct_fields__}


def row_length_of(phases: list[Phase], step: int) -> int | None:
    return [phase.row_length for phase in phases if phase.first_step <= step][-1]


# Shorter rows.


def some_rows(*, aligned: bool) -> Rows:
    """7 8 9 | 3 4 5 | padding, and 1 2 3 | 5 6 7 8 9."""
    ids = np.array([[7, 8, 9, 3, 4, 5, 0, 0], [1, 2, 3, 5, 6, 7, 8, 9]], np.uint16)
    first, other, pad = REAL | RESTART, REAL | TARGET, np.uint8(0)
    if aligned:
        flags = [
            [first, other, other, first, other, other, RESTART, pad],
            [first, other, other, first, other, other, other, other],
        ]
        return Rows(ids, ids, np.array(flags, np.uint8), aligned=True)
    labels = np.array([[8, 9, 0, 4, 5, 0, 0, 0], [2, 3, 0, 6, 7, 8, 9, 0]], np.uint16)
    first, last = REAL | RESTART | TARGET, REAL
    flags = [
        [first, other, last, first, other, last, RESTART, pad],
        [first, other, last, first, other, other, other, last],
    ]
    return Rows(ids, labels, np.array(flags, np.uint8), aligned=False)


@pytest.mark.parametrize("row_length", [3, 5, 16, 9])
def test_rows_that_cannot_be_cut_evenly_are_refused(row_length: int) -> None:
    with pytest.raises(UserError) as caught:
        shortened(some_rows(aligned=True), row_length)
    assert caught.value.what == f"cannot cut rows evenly into {row_length} tokens"
    assert caught.value.why == f"8 is not a multiple of {row_length}"


def test_a_curriculum_of_a_plan_keeps_the_steps_of_ranks(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    texts = ["1" * (1 + number % 7) for number in range(64)]
    path = write_jsonl(tmp_path / "a.jsonl", texts)
    dataset = tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1).dataset
    plan = tokenmill.pack(dataset, sequence_length=16, packing="balanced", ranks=4).plan
    curriculum = Curriculum.of_plan(plan, dataset, 4, (Phase(by="depth"),), seed=3)
    steps = [sorted(curriculum.batch(step).tolist()) for step in range(curriculum.num_steps)]
    assert sorted(steps) == [[n, n + 1, n + 2, n + 3] for n in range(0, len(plan), 4)]
    with pytest.raises(UserError, match="batch_size must be a multiple of"):
        Curriculum.of_plan(plan, dataset, 6)

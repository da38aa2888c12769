"""Schedules: what each step takes, over epochs, in buckets of length, by a curriculum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import all_batches, digits, plan_of

from tokenmill import Dataset
from tokenmill.core.errors import UserError
from tokenmill.load.opening import open_batches
from tokenmill.load.steps.batch_size import BatchSize
from tokenmill.load.steps.curriculum import Curriculum, CurriculumSchedule, Phase
from tokenmill.load.steps.order import Order, Shuffle, steps_of
from tokenmill.load.steps.plan_schedule import PlanSchedule
from tokenmill.load.steps.schedule import GlobalBatch, only_row_length
from tokenmill.store.plan import Plan

SHUFFLES: list[Shuffle] = ["global", "blocks", "none"]
PlanOf = Callable[..., Plan]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """One document of 16 tokens."""
    return digits(tmp_path_factory.mktemp("digits"), ["123456789123456"])


@pytest.fixture(scope="module")
def planned(dataset: Dataset, folders: Iterable[Path]) -> PlanOf:
    """A plan whose sequences have these numbers of tokens."""

    def make(sizes: list[int], **options: Any) -> Plan:
        rows = [[(0, 0, size)] for size in sizes]
        made_of = {"sequence_length": 16, **options}
        return plan_of(next(iter(folders)), dataset, rows, **made_of)

    return make


def steps_in(schedule: PlanSchedule | CurriculumSchedule) -> list[GlobalBatch]:
    found: list[GlobalBatch] = []
    while (batch := schedule.batch(len(found))) is not None:
        found.append(batch)
    assert schedule.num_steps == len(found)
    return found


def shown(batch: GlobalBatch | None) -> list[tuple[int, int]] | None:
    """(epoch, sequence) of each row."""
    if batch is None:
        return None
    assert batch.sources.tolist() == [0] * len(batch.sequences)
    return list(zip(batch.epochs.tolist(), batch.sequences.tolist(), strict=True))


# A plan with rows of one length.


@settings(max_examples=80, deadline=None)
@given(
    size=st.integers(1, 40),
    rows=st.integers(1, 50),
    epochs=st.integers(1, 5),
    seed=st.integers(0, 9),
    shuffle=st.sampled_from(SHUFFLES),
)
def test_steps_are_the_epochs_one_after_another(
    size: int, rows: int, epochs: int, seed: int, shuffle: Shuffle, planned: PlanOf
) -> None:
    plan = planned([1] * size)
    options = {"seed": seed, "shuffle": shuffle}
    schedule = PlanSchedule(plan, BatchSize(rows=rows), epochs=epochs, **options)
    order = Order(steps_of(plan), seed, shuffle)
    whole = [
        (epoch, sequence)
        for epoch in range(epochs)
        for sequence in order(epoch, np.arange(size)).tolist()
    ]
    found = [row for batch in steps_in(schedule) for row in shown(batch) or []]
    assert found == whole[: len(whole) // rows * rows]
    assert schedule.rows_left == len(whole) - len(found)
    assert all(len(batch.sequences) == rows for batch in steps_in(schedule))


def test_a_plan_without_sequences_is_refused(planned: PlanOf) -> None:
    with pytest.raises(UserError, match="the plan has no sequence"):
        PlanSchedule(planned([]), BatchSize(rows=1))


def test_a_batch_smaller_than_a_row_is_refused(planned: PlanOf) -> None:
    with pytest.raises(UserError) as caught:
        PlanSchedule(planned([1] * 5), BatchSize(tokens=15))
    assert caught.value.why == "it has 0 rows of 16 tokens"


# Plans that are balanced over ranks.


def balanced(planned: PlanOf, size: int) -> Plan:
    return planned([16] * size, packing="balanced", ranks=4)


@pytest.mark.parametrize("rows", [1, 2, 6, 9])
def test_a_batch_that_would_tear_them_apart_is_refused(rows: int, planned: PlanOf) -> None:
    with pytest.raises(UserError) as caught:
        PlanSchedule(balanced(planned, 24), BatchSize(rows=rows))
    assert caught.value.what == "the rows of a global batch must be a multiple of 4"
    assert caught.value.why.endswith("and 4 sequences of the plan stay together")


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 40),
    groups=st.integers(1, 4),
    epochs=st.integers(1, 4),
    shuffle=st.sampled_from(SHUFFLES),
)
def test_groups_stay_together_over_all_epochs(
    size: int, groups: int, epochs: int, shuffle: Shuffle, planned: PlanOf
) -> None:
    plan = balanced(planned, size)
    schedule = PlanSchedule(plan, BatchSize(rows=4 * groups), epochs=epochs, shuffle=shuffle)
    rows = [row for batch in steps_in(schedule) for row in shown(batch) or []]
    for first in range(0, len(rows), 4):
        (epoch, sequence), *others = rows[first : first + 4]
        assert sequence % 4 == 0
        assert others == [(epoch, sequence + more) for more in (1, 2, 3)]
    assert len(set(rows)) == len(rows)
    assert len(rows) + schedule.rows_left == epochs * size
    assert len(rows) == epochs * (size // 4) // groups * groups * 4


# A plan with rows of several lengths.

SIZES = [3, 16, 5, 1, 9, 2, 7, 4, 16, 6, 2, 11, 3]
"""Rows of 4 tokens: seven; of 8: three; of 16: four."""
BUCKETS = {"packing": "length-buckets", "smallest_bucket": 4}
LENGTHS = [4 if size <= 4 else 8 if size <= 8 else 16 for size in SIZES]


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 16), min_size=1, max_size=40),
    size=st.integers(1, 7).map(lambda rows: BatchSize(rows=rows))
    | st.integers(16, 80).map(lambda tokens: BatchSize(tokens=tokens)),
    epochs=st.integers(1, 4),
    shuffle=st.sampled_from(SHUFFLES),
)
def test_every_sequence_comes_once_in_each_epoch_apart_from_what_is_left(
    sizes: list[int], size: BatchSize, epochs: int, shuffle: Shuffle, planned: PlanOf
) -> None:
    plan = planned(sizes, **BUCKETS)
    schedule = PlanSchedule(plan, size, seed=1, shuffle=shuffle, epochs=epochs)
    batches = steps_in(schedule)
    given_rows = [row for batch in batches for row in shown(batch) or []]
    assert len(given_rows) == len(set(given_rows))
    every = {(epoch, sequence) for epoch in range(epochs) for sequence in range(len(sizes))}
    left = every - set(given_rows)
    assert len(left) == schedule.rows_left
    bucket = {sequence: next(b for b in (4, 8, 16) if n <= b) for sequence, n in enumerate(sizes)}
    for batch in batches:
        rows = size.rows or (size.tokens or 0) // batch.row_length
        assert len(batch.sequences) == rows
        assert {bucket[sequence] for sequence in batch.sequences.tolist()} == {batch.row_length}
    # What is left of a bucket is less than a batch, and its last epochs.
    for row_length in set(bucket.values()):
        rows_of = [row for row in given_rows if bucket[row[1]] == row_length]
        left_of = [row for row in left if bucket[row[1]] == row_length]
        assert len(left_of) < (size.rows or (size.tokens or 0) // row_length)
        assert not rows_of or not left_of or max(rows_of)[0] <= min(left_of)[0]


def test_the_steps_of_buckets_far_away_are_found_at_once(planned: PlanOf) -> None:
    schedule = PlanSchedule(planned(SIZES, **BUCKETS), BatchSize(rows=4), epochs=None)
    batch = schedule.batch(10**10)
    assert batch is not None
    assert abs(batch.epochs - 10**10 * 4 // len(SIZES)).max() <= 2
    assert len({LENGTHS[sequence] for sequence in batch.sequences.tolist()}) == 1


@pytest.mark.parametrize("size", [{"global_batch_size": 4}, {"tokens_per_batch": 32}])
def test_rows_of_buckets_go_to_any_ranks(
    size: dict[str, int], planned: PlanOf, dataset: Dataset
) -> None:
    plan = planned(SIZES * 3, **BUCKETS)
    options = {"columns": ("input_ids",), "seed": 5, "epochs": 2}
    whole = size if "global_batch_size" in size else {"tokens_per_batch": 64}
    expected = [
        sorted(batch["input_ids"].tolist())
        for batch in all_batches(open_batches(dataset, plan, **whole, **options))
    ]
    ranks = [
        all_batches(open_batches(dataset, plan, **size, **options, rank=rank, world_size=2))
        for rank in (0, 1)
    ]
    together = [
        sorted(one["input_ids"].tolist() + other["input_ids"].tolist())
        for one, other in zip(*ranks, strict=True)
    ]
    assert together == expected
    assert len(together) >= 10


# Curricula.


def curriculum_of(plan: Plan, dataset: Dataset, *phases: Phase, rows: int = 2) -> Curriculum:
    return Curriculum.of_plan(plan, dataset, rows, phases or (Phase(),), seed=2)


def test_a_row_length_that_does_not_divide_that_of_the_plan_is_refused(
    planned: PlanOf, dataset: Dataset
) -> None:
    plan = planned([16] * 4)
    curriculum = curriculum_of(plan, dataset, Phase(row_length=5))
    with pytest.raises(UserError, match="cannot cut the rows of a phase evenly"):
        open_batches(dataset, plan, curriculum=curriculum).batch(0)


@pytest.mark.parametrize(
    "given_options",
    [
        {"batch_size": 2},
        {"global_batch_size": 2},
        {"tokens_per_batch": 32},
        {"epochs": 2},
        {"shuffle": "none"},
        {"shuffle": "none", "batch_size": 2, "epochs": None},
    ],
)
def test_a_curriculum_decides_what_a_step_takes(
    given_options: dict[str, Any], planned: PlanOf, dataset: Dataset
) -> None:
    plan = planned([16] * 6)
    with pytest.raises(UserError) as caught:
        open_batches(dataset, plan, curriculum=curriculum_of(plan, dataset), **given_options)
    assert caught.value.what == "these options cannot be combined with a curriculum"
    assert caught.value.why == (
        f"a curriculum sets its own batch size and order; got {', '.join(sorted(given_options))}"
    )


def test_curricula_need_rows_of_one_length(planned: PlanOf, dataset: Dataset) -> None:
    plan = planned(SIZES, **BUCKETS)
    with pytest.raises(UserError, match="the rows of the plan have several lengths"):
        CurriculumSchedule(plan, curriculum_of(plan, dataset))
    assert only_row_length(planned([3], sequence_multiple=24)) == 24

"""Schedules: what each step takes, over epochs, in buckets of length, by a curriculum."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import PAD, all_batches, as_lists, digits, plan_of

from tokenmill import Dataset
from tokenmill.core.errors import UserError
from tokenmill.load.opening import open_batches
from tokenmill.load.steps.curriculum import Curriculum, CurriculumSchedule, Phase
from tokenmill.load.steps.order import Order, Shuffle, steps_of
from tokenmill.load.steps.schedule import (
    BatchSize,
    GlobalBatch,
    PlanSchedule,
    only_row_length,
)
from tokenmill.store.plan import Plan

SHUFFLES: list[Shuffle] = ["global", "blocks", "none"]
PlanOf = Callable[..., Plan]

pytestmark = pytest.mark.usefixtures("without_waiting_for_disks")


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


def test_a_batch_may_hold_the_end_of_an_epoch_and_the_beginning_of_the_next(
    planned: PlanOf,
) -> None:
    schedule = PlanSchedule(planned([1] * 5), BatchSize(rows=3), shuffle="none", epochs=2)
    assert [shown(batch) for batch in steps_in(schedule)] == [
        [(0, 0), (0, 1), (0, 2)],
        [(0, 3), (0, 4), (1, 0)],
        [(1, 1), (1, 2), (1, 3)],
    ]
    assert (schedule.num_steps, schedule.rows_left) == (3, 1)
    assert [batch.row_length for batch in steps_in(schedule)] == [16, 16, 16]
    assert [batch.cut_length for batch in steps_in(schedule)] == [None] * 3


def test_a_batch_may_hold_several_epochs(planned: PlanOf) -> None:
    schedule = PlanSchedule(planned([1] * 2), BatchSize(rows=5), shuffle="none", epochs=None)
    assert shown(schedule.batch(1)) == [(2, 1), (3, 0), (3, 1), (4, 0), (4, 1)]


def test_tokens_of_a_batch_are_as_many_whole_rows_as_fit(planned: PlanOf) -> None:
    plan = planned([1] * 9)
    sizes = {
        tokens: len(PlanSchedule(plan, BatchSize(tokens=tokens)).batch(0).sequences)
        for tokens in (16, 31, 32, 48)
    }
    assert sizes == {16: 1, 31: 1, 32: 2, 48: 3}


def test_epochs_without_end_have_steps_without_number(planned: PlanOf) -> None:
    schedule = PlanSchedule(planned([1] * 7), BatchSize(rows=3), epochs=None)
    assert (schedule.num_steps, schedule.rows_left) == (None, 0)
    far = schedule.batch(7 * 10**9)
    assert far is not None
    assert far.epochs.tolist() == [3 * 10**9] * 3
    assert far.sequences.tolist() != schedule.batch(0).sequences.tolist()


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


def test_more_epochs_go_on_where_fewer_ended(planned: PlanOf) -> None:
    plan = planned([1] * 10)
    fewer, more = (PlanSchedule(plan, BatchSize(rows=4), epochs=epochs) for epochs in (1, 3))
    assert list(map(shown, steps_in(more)))[:2] == list(map(shown, steps_in(fewer)))


def test_what_the_order_depends_on_and_how_far_it_has_come(planned: PlanOf) -> None:
    schedule = PlanSchedule(planned([1] * 5), BatchSize(rows=2), seed=3, epochs=2)
    assert schedule.identity() == {"shuffle": "global"}
    assert [schedule.progress(step) for step in (0, 2, 3, 4, 5)] == [
        {"epoch": epoch} for epoch in (0, 0, 1, 1, 2)
    ]


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


def test_the_sequences_of_a_balanced_step_are_in_one_batch(planned: PlanOf) -> None:
    schedule = PlanSchedule(balanced(planned, 24), BatchSize(rows=8), epochs=3)
    groups = [
        batch.sequences[first : first + 4].tolist()
        for batch in steps_in(schedule)
        for first in (0, 4)
    ]
    assert len(groups) == 18
    assert all(group == list(range(group[0], group[0] + 4)) for group in groups)
    assert Counter(group[0] for group in groups) == dict.fromkeys(range(0, 24, 4), 3)


@pytest.mark.parametrize("rows", [1, 2, 6, 9])
def test_a_batch_that_would_tear_them_apart_is_refused(rows: int, planned: PlanOf) -> None:
    with pytest.raises(UserError) as caught:
        PlanSchedule(balanced(planned, 24), BatchSize(rows=rows))
    assert caught.value.what == "the rows of a global batch must be a multiple of 4"
    assert caught.value.why.endswith("and 4 sequences of the plan stay together")


def test_nor_does_an_epoch_that_ends_with_an_incomplete_step(planned: PlanOf) -> None:
    """What makes no whole group is left out of every epoch."""
    plan = balanced(planned, 10)
    schedule = PlanSchedule(plan, BatchSize(rows=4), epochs=2, shuffle="none")
    assert list(map(shown, steps_in(schedule))) == [
        [(epoch, sequence) for sequence in range(first, first + 4)]
        for epoch in (0, 1)
        for first in (0, 4)
    ]
    assert Order(steps_of(plan), 0).size == 8
    assert schedule.rows_left == 2 * 2


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


def test_a_plan_of_less_than_a_group_has_no_step(planned: PlanOf) -> None:
    schedule = PlanSchedule(balanced(planned, 3), BatchSize(rows=4), epochs=5)
    assert (schedule.num_steps, schedule.rows_left, schedule.batch(0)) == (0, 15, None)


# A plan with rows of several lengths.

SIZES = [3, 16, 5, 1, 9, 2, 7, 4, 16, 6, 2, 11, 3]
"""Rows of 4 tokens: seven; of 8: three; of 16: four."""
BUCKETS = {"packing": "length-buckets", "smallest_bucket": 4}
LENGTHS = [4 if size <= 4 else 8 if size <= 8 else 16 for size in SIZES]


def test_batches_of_buckets_have_rows_of_one_length(planned: PlanOf) -> None:
    schedule = PlanSchedule(planned(SIZES, **BUCKETS), BatchSize(rows=2), shuffle="none")
    assert [(batch.row_length, shown(batch)) for batch in steps_in(schedule)] == [
        (4, [(0, 0), (0, 3)]),
        (4, [(0, 5), (0, 7)]),
        (4, [(0, 10), (0, 12)]),
        (8, [(0, 2), (0, 6)]),
        (16, [(0, 1), (0, 4)]),
        (16, [(0, 8), (0, 11)]),
    ]
    assert schedule.rows_left == 1


def test_batches_of_as_many_tokens_have_more_rows_of_short_ones(planned: PlanOf) -> None:
    schedule = PlanSchedule(planned(SIZES, **BUCKETS), BatchSize(tokens=16), shuffle="none")
    assert [(batch.row_length, shown(batch)) for batch in steps_in(schedule)] == [
        (4, [(0, 0), (0, 3), (0, 5), (0, 7)]),
        (8, [(0, 2), (0, 6)]),
        (16, [(0, 1)]),
        (16, [(0, 4)]),
        (16, [(0, 8)]),
        (16, [(0, 11)]),
    ]
    assert schedule.rows_left == 3


def test_what_is_left_of_an_epoch_is_in_the_first_batches_of_the_next(planned: PlanOf) -> None:
    schedule = PlanSchedule(
        planned([2, 9, 2, 2], **BUCKETS), BatchSize(rows=2), shuffle="none", epochs=2
    )
    assert [(batch.row_length, shown(batch)) for batch in steps_in(schedule)] == [
        (4, [(0, 0), (0, 2)]),
        (4, [(0, 3), (1, 0)]),
        (4, [(1, 2), (1, 3)]),
        (16, [(0, 1), (1, 1)]),
    ]
    assert schedule.rows_left == 0


def test_batches_of_all_lengths_are_shuffled(planned: PlanOf) -> None:
    plan = planned([4, 8, 16] * 30, **BUCKETS)
    schedule = PlanSchedule(plan, BatchSize(rows=3), epochs=2)
    lengths = [batch.row_length for batch in steps_in(schedule)]
    for epoch in (lengths[:30], lengths[30:]):
        assert Counter(epoch) == {4: 10, 8: 10, 16: 10}
        assert sum(one != other for one, other in pairwise(epoch)) > 12
    assert lengths[:30] != lengths[30:]


def test_the_rows_of_a_bucket_are_shuffled(planned: PlanOf) -> None:
    schedule = PlanSchedule(planned([4] * 30 + [8], **BUCKETS), BatchSize(rows=30), epochs=2)
    orders = [batch.sequences.tolist() for batch in steps_in(schedule)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(30))
    assert list(range(30)) != orders[0] != orders[1]


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


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 16), min_size=1, max_size=30),
    rows=st.integers(1, 7),
    epoch=st.integers(1, 3),
)
def test_steps_stay_the_same_however_many_epochs_follow(
    sizes: list[int], rows: int, epoch: int, planned: PlanOf
) -> None:
    plan = planned(sizes, **BUCKETS)
    fewer = PlanSchedule(plan, BatchSize(rows=rows), epochs=epoch)
    more = PlanSchedule(plan, BatchSize(rows=rows), epochs=epoch + 2)
    endless = PlanSchedule(plan, BatchSize(rows=rows), epochs=None)
    expected = list(map(shown, steps_in(fewer)))
    for schedule in (more, endless):
        assert [shown(schedule.batch(step)) for step in range(len(expected))] == expected


def test_the_steps_of_buckets_far_away_are_found_at_once(planned: PlanOf) -> None:
    schedule = PlanSchedule(planned(SIZES, **BUCKETS), BatchSize(rows=4), epochs=None)
    batch = schedule.batch(10**10)
    assert batch is not None
    assert abs(batch.epochs - 10**10 * 4 // len(SIZES)).max() <= 2
    assert len({LENGTHS[sequence] for sequence in batch.sequences.tolist()}) == 1


def test_fewer_tokens_than_the_longest_row_are_refused(planned: PlanOf) -> None:
    with pytest.raises(UserError) as caught:
        PlanSchedule(planned(SIZES, **BUCKETS), BatchSize(tokens=15))
    assert caught.value.why.startswith("it has 0 rows of 16 tokens")


def test_rows_of_buckets_are_padded_to_their_length(planned: PlanOf, dataset: Dataset) -> None:
    plan = planned([3, 7, 4], **BUCKETS)
    options = {"columns": ("input_ids",), "shuffle": "none"}
    with pytest.raises(UserError, match="not enough rows for one global batch"):
        open_batches(dataset, plan, tokens_per_batch=16, **options)
    assert PlanSchedule(plan, BatchSize(tokens=16), shuffle="none").num_steps == 0
    found = all_batches(open_batches(dataset, plan, tokens_per_batch=16, epochs=2, **options))
    assert list(map(as_lists, found)) == [
        {"input_ids": [[1, 2, 3, PAD], [1, 2, 3, 4], [1, 2, 3, PAD], [1, 2, 3, 4]]},
        {"input_ids": [[1, 2, 3, 4, 5, 6, 7, PAD]] * 2},
    ]


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


# Rows of a global batch, and ranks.


def test_schedules_say_how_many_rows_a_batch_has(planned: PlanOf, dataset: Dataset) -> None:
    plan = planned([16] * 9)
    assert PlanSchedule(plan, BatchSize(rows=3)).row_counts == [3]
    assert PlanSchedule(plan, BatchSize(tokens=40)).row_counts == [2]
    buckets = planned(SIZES, **BUCKETS)
    assert PlanSchedule(buckets, BatchSize(tokens=48)).row_counts == [12, 6, 3]
    assert PlanSchedule(buckets, BatchSize(rows=5)).row_counts == [5, 5, 5]
    curriculum = curriculum_of(plan, dataset, Phase(row_length=4), rows=3)
    assert CurriculumSchedule(plan, curriculum).row_counts == [3]


@pytest.mark.parametrize(
    ("made_of", "options", "why"),
    [
        ({}, {"global_batch_size": 4}, "it has 4 rows, and there are 3 ranks"),
        (BUCKETS, {"global_batch_size": 8}, "it has 8 rows, and there are 3 ranks"),
        (BUCKETS, {"tokens_per_batch": 24}, "it has 4 rows, and there are 3 ranks"),
    ],
)
def test_ranks_that_do_not_divide_it_are_refused_at_once(
    made_of: dict[str, Any],
    options: dict[str, int],
    why: str,
    planned: PlanOf,
    dataset: Dataset,
) -> None:
    """Rows of 16 tokens would be 72 // 16 = 4 for three ranks; those of 4 and 8 divide."""
    with pytest.raises(UserError) as caught:
        open_batches(dataset, planned(SIZES * 2, **made_of), **options, rank=1, world_size=3)
    assert caught.value.what == "cannot divide the global batch among the ranks"
    assert caught.value.why == why


def test_ranks_share_the_rows_of_a_curriculum(planned: PlanOf, dataset: Dataset) -> None:
    plan = planned([16] * 8)
    curriculum = curriculum_of(plan, dataset, rows=4)
    with pytest.raises(UserError, match="cannot divide the global batch among the ranks"):
        open_batches(dataset, plan, curriculum=curriculum, rank=0, world_size=3)
    shared = open_batches(dataset, plan, curriculum=curriculum, rank=0, world_size=2)
    assert len(shared.batch(0)["input_ids"]) == 2


def test_the_schedule_of_batches_is_there_to_be_asked(planned: PlanOf, dataset: Dataset) -> None:
    batches = open_batches(dataset, planned([16] * 8), batch_size=3)
    assert isinstance(batches.schedule, PlanSchedule)
    assert (batches.schedule.num_steps, batches.schedule.rows_left) == (2, batches.rows_left)
    assert batches.rows_left == 2


# Curricula.


def curriculum_of(plan: Plan, dataset: Dataset, *phases: Phase, rows: int = 2) -> Curriculum:
    return Curriculum.of_plan(plan, dataset, rows, phases or (Phase(),), seed=2)


def test_a_curriculum_says_what_steps_take_and_how_long_rows_are(
    planned: PlanOf, dataset: Dataset
) -> None:
    plan = planned([5, 1, 4, 2, 3])
    phases = Phase(by="length", row_length=4), Phase(first_step=1, by="length")
    schedule = CurriculumSchedule(plan, curriculum_of(plan, dataset, *phases))
    batches = steps_in(schedule)
    assert [batch.sequences.tolist() for batch in batches] == [[1, 3], [4, 2]]
    assert [batch.epochs.tolist() for batch in batches] == [[0, 0], [0, 0]]
    assert [(batch.row_length, batch.cut_length) for batch in batches] == [(16, 4), (16, None)]
    assert (schedule.num_steps, schedule.rows_left, schedule.identity()) == (2, 1, {})
    assert schedule.batch(2) is None


def test_rows_are_cut_at_constant_tokens_until_they_are_whole(
    planned: PlanOf, dataset: Dataset
) -> None:
    plan = planned([16] * 6)
    phases = Phase(row_length=4), Phase(first_step=1, row_length=8), Phase(first_step=2)
    curriculum = curriculum_of(plan, dataset, *phases)
    columns = ("input_ids", "position_ids", "cu_seqlens", "max_seqlen")
    batches = all_batches(open_batches(dataset, plan, curriculum=curriculum, columns=columns))
    row = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 0]
    for batch, row_length in zip(map(as_lists, batches), (4, 8, 16), strict=True):
        times = 16 // row_length
        pieces = [row[first : first + row_length] for first in range(0, 16, row_length)]
        room = 2 * (1 + 1 + times - 1)  # one segment, padding, and one more for each cut
        edges = [*range(0, 32, row_length), *[32] * (room + 1 - 2 * times)]
        assert batch == {
            "input_ids": pieces * 2,
            "position_ids": [list(range(row_length))] * (2 * times),
            "cu_seqlens": edges,
            "max_seqlen": row_length,
        }


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


def test_phases_that_were_added_while_training_are_part_of_the_state(
    planned: PlanOf, dataset: Dataset
) -> None:
    plan = planned([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])

    def batches() -> tuple[Any, Curriculum]:
        curriculum = curriculum_of(plan, dataset)
        columns = ("input_ids", "max_seqlen")
        return open_batches(dataset, plan, curriculum=curriculum, columns=columns), curriculum

    running, curriculum = batches()
    iterator = iter(running)
    next(iterator)
    curriculum.change(Phase(first_step=1, by="length", row_length=8))
    next(iterator)
    state = json.loads(json.dumps(running.state_dict()))
    resumed, _ = batches()
    resumed.load_state_dict(state)
    expected = [as_lists(batch) for batch in iterator]
    assert [as_lists(batch) for batch in resumed] == expected
    assert [len(batch["input_ids"]) for batch in expected] == [4, 4, 4]
    assert len(resumed) == 5


def test_curricula_need_rows_of_one_length(planned: PlanOf, dataset: Dataset) -> None:
    plan = planned(SIZES, **BUCKETS)
    with pytest.raises(UserError, match="the rows of the plan have several lengths"):
        CurriculumSchedule(plan, curriculum_of(plan, dataset))
    assert only_row_length(planned([3], sequence_multiple=24)) == 24

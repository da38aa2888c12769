"""The matrix: ranks, stops, plans, sources and shuffles, and always the same global batches.

Every run is compared, byte for byte, with one on a single rank that was never stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from resume_kit import (
    COLUMNS,
    PLANS,
    SHUFFLES,
    WORLD_SIZES,
    Open,
    Run,
    all_bytes,
    as_bytes,
    global_batches,
    opener,
    resumed,
    write_corpora,
)

import tokenmill
from tokenmill import Curriculum, MixtureSource, Phase
from tokenmill.core.errors import UserError
from tokenmill.load.batches import Batches

CASES = [
    pytest.param(plan, sources, shuffle, id=f"{plan}-{sources}-{shuffle}")
    for plan in PLANS
    for sources in (1, 3)
    for shuffle in SHUFFLES
    if plan != "buckets" or sources == 1
]

Cases = Callable[[str, int, str], tuple[Open, Run]]
"""Plan, sources and shuffle; how to open them anew, and the run to compare with."""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Path]]:
    return write_corpora(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def run_of(corpora: dict[int, list[Path]]) -> Cases:
    @cache
    def found(plan: str, sources: int, shuffle: str) -> tuple[Open, Run]:
        anew = opener(corpora[sources], plan, shuffle=shuffle)
        return anew, Run.of(anew)

    return found


@pytest.mark.parametrize("at_once", [1, pytest.param(5, marks=pytest.mark.soak)])
@pytest.mark.parametrize("even_attention", [True, False], ids=["even", "in order"])
@pytest.mark.parametrize(("plan", "sources", "shuffle"), CASES)
def test_stopped_at_any_step_and_resumed_on_any_number_of_ranks_it_is_the_same_run(
    plan: str,
    sources: int,
    shuffle: str,
    even_attention: bool,
    at_once: int,
    run_of: Cases,
) -> None:
    """The state is that of one rank; the next test shows that it is that of any.

    Numbers of ranks take turns; the soak has them all at every stop.
    """
    anew, run = run_of(plan, sources, shuffle)
    expected = all_bytes(run.batches)
    assert 8 <= len(run) <= 18
    assert _steps_of_two_epochs(anew, len(run))
    first = SHUFFLES.index(shuffle) + sources
    for stop in range(len(run)):
        for turn in range(stop + first, stop + first + at_once):
            world_size = WORLD_SIZES[turn % len(WORLD_SIZES)]
            options = {"even_attention": even_attention}
            ranks = resumed(anew, run.states[stop], world_size, **options)
            assert ranks[-1].digest(stop) == run.digests[stop]
            assert all_bytes(global_batches(ranks)) == expected[stop:]


@pytest.mark.parametrize(("plan", "sources", "shuffle"), CASES)
def test_after_the_last_step_there_is_nothing_to_resume(
    plan: str, sources: int, shuffle: str, run_of: Cases
) -> None:
    anew, run = run_of(plan, sources, shuffle)
    (batches,) = resumed(anew, run.states[-1])
    with pytest.raises(UserError, match="no batches left: all have been returned already"):
        next(iter(batches))


def _steps_of_two_epochs(anew: Open, num_steps: int) -> list[int]:
    """Steps whose global batch has the end of one epoch and the beginning of the next."""
    (batches,) = anew()
    wholes = [batches.global_batch(step) for step in range(num_steps)]
    return [step for step, whole in enumerate(wholes) if len(set(whole.epochs.tolist())) == 2]


# Beyond the matrix: tokens in place of rows, curricula, shares that change, endless epochs.


@pytest.mark.parametrize("at_once", [1, pytest.param(4, marks=pytest.mark.soak)])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_batches_of_constant_tokens_are_the_same_on_any_number_of_ranks(
    shuffle: str, at_once: int, corpora: dict[int, list[Path]]
) -> None:
    anew = opener(corpora[1], "buckets", shuffle=shuffle, global_batch_size=None)
    run = Run.of(lambda **options: anew(tokens_per_batch=256, **options))
    assert {batch["input_ids"].shape for batch in run.batches} == {(32, 8), (16, 16), (8, 32)}
    for stop in range(len(run)):
        for turn in range(stop, stop + at_once):
            world_size = (1, 2, 4, 8)[turn % 4]
            tokens = 256 // world_size
            ranks = resumed(anew, run.states[stop], world_size, tokens_per_batch=tokens)
            assert ranks[0].digest(stop) == run.digests[stop]
            assert all_bytes(global_batches(ranks)) == all_bytes(run.batches[stop:])


PHASES = (
    Phase(by="length", row_length=4),
    Phase(first_step=1, by="depth", descending=True, row_length=8),
    Phase(first_step=3),
)


def test_a_curriculum_is_the_same_run_on_any_number_of_ranks(
    corpora: dict[int, list[Path]],
) -> None:
    def anew(world_size: int = 1) -> list[Batches]:
        dataset = tokenmill.open(corpora[1][0])
        plan = tokenmill.open_plan(dataset, "packed")
        curriculum = Curriculum.of_plan(plan, dataset, 24, PHASES, seed=5)
        made = {"curriculum": curriculum, "columns": ("input_ids", "labels")}
        return [
            dataset.batches(plan, rank=rank, world_size=world_size, **made)
            for rank in range(world_size)
        ]

    run = Run.of(anew)
    shapes = [batch["input_ids"].shape for batch in run.batches]
    assert shapes[:4] == [(96, 4), (48, 8), (48, 8), (24, 16)]
    for stop in range(len(run)):
        for world_size in WORLD_SIZES:
            ranks = resumed(anew, run.states[stop], world_size)
            assert ranks[0].digest(stop) == run.digests[stop]
            assert all_bytes(global_batches(ranks)) == all_bytes(run.batches[stop:])


def test_a_phase_that_was_added_in_training_is_taken_over_with_the_state(
    corpora: dict[int, list[Path]],
) -> None:
    def anew(phases: tuple[Phase, ...]) -> tuple[Curriculum, Batches]:
        dataset = tokenmill.open(corpora[1][0])
        plan = tokenmill.open_plan(dataset, "packed")
        curriculum = Curriculum.of_plan(plan, dataset, 24, phases, seed=5)
        return curriculum, dataset.batches(plan, curriculum=curriculum)

    curriculum, batches = anew(PHASES[:1])
    next(iter(batches))
    for phase in PHASES[1:]:
        curriculum.change(phase)
    _, other = anew((Phase(),))
    other.load_state_dict(batches.state_dict())
    _, planned = anew(PHASES)
    steps = range(1, len(batches))
    assert [other.digest(step) for step in steps] == [planned.digest(step) for step in steps]


def test_shares_that_change_over_the_steps_are_the_same_run_on_any_number_of_ranks(
    corpora: dict[int, list[Path]],
) -> None:
    def anew(world_size: int = 1) -> list[Batches]:
        datasets = [tokenmill.open(folder) for folder in corpora[3]]
        shares = (((0, 1.0), (4, 0.0)), ((0, 0.0), (4, 1.0)), 0.25)
        sources = [
            MixtureSource(dataset=dataset, plan=tokenmill.open_plan(dataset, "packed"), share=share)
            for dataset, share in zip(datasets, shares, strict=True)
        ]
        made = {"global_batch_size": 24, "columns": COLUMNS, "when_one_ends": "go on"}
        return [
            tokenmill.mix_batches(sources, rank=rank, world_size=world_size, **made)
            for rank in range(world_size)
        ]

    run = Run.of(anew)
    for stop in range(len(run)):
        for world_size in WORLD_SIZES:
            ranks = resumed(anew, run.states[stop], world_size)
            assert ranks[0].digest(stop) == run.digests[stop]
            assert all_bytes(global_batches(ranks)) == all_bytes(run.batches[stop:])


@pytest.mark.parametrize("plan", ["packed", "buckets"])
def test_epochs_without_end_begin_with_those_that_were_counted(
    plan: str, corpora: dict[int, list[Path]]
) -> None:
    anew = opener(corpora[1], plan)
    run = Run.of(anew)
    (endless,) = anew(epochs=None)
    assert [endless.digest(step) for step in range(len(run))] == run.digests
    far = 10**9
    (batches,) = resumed(anew, endless.state_dict(far), epochs=None)
    assert as_bytes(next(iter(batches))) == as_bytes(endless.batch(far))
    assert batches.step == far + 1

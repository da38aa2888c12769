"""Legs of a run: a run that is amended gives each row once, and can be replayed."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import strategies as st
from resume_kit import through_json, write_corpora

import tokenmill
from conftest import random_trials
from tokenmill.core.errors import UserError
from tokenmill.load.batches import Batches
from tokenmill.load.loader import Loader
from tokenmill.load.opening import open_run
from tokenmill.load.rows.reader import plan_row_lengths
from tokenmill.load.steps.curriculum import Curriculum
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.load.steps.order import Order, Steps, steps_of
from tokenmill.load.steps.schedule import seed_of_source, token_counts
from tokenmill.load.steps.state import checked_state
from tokenmill.store.plan import Plan

RANKS = (1, 3, 8)
SEED = 5
Rows = dict[str, list[tuple[int, int]]]
"""Of each plan, by id: epoch and sequence of every row that was given, in order."""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpora(tmp_path_factory.mktemp("corpora"))[3]


@pytest.fixture(scope="module")
def source_of(corpora: list[Path]) -> Callable[..., MixtureSource]:
    return lambda name, **options: MixtureSource.of(
        corpora["abc".index(name)], "packed", epochs=None, name=name, **options
    )


def refused(action: Callable[[], object]) -> UserError:
    with pytest.raises(UserError) as error:
        action()
    return error.value


class Trainer:
    """A run that is saved after each leg and sometimes killed after it."""

    def __init__(self, source_of: Callable[..., MixtureSource]) -> None:
        self.source_of = source_of
        self.rows: Rows = defaultdict(list)
        self.digests: list[str] = []
        self.state: dict[str, Any] = {}

    def open(self, leg: dict[str, Any], world_size: int) -> list[Batches]:
        """The batches of each rank, at the step of the last state."""
        names = zip(leg["names"], leg["shares"], strict=True)
        sources = [self.source_of(name, share=share) for name, share in names]
        options = {"global_batch_size": leg["size"], "seed": SEED, "world_size": world_size}
        if self.state:
            self.state = tokenmill.amend(self.state, sources=sources, global_batch_size=leg["size"])
        ranks = [tokenmill.mix_batches(sources, rank=rank, **options) for rank in range(world_size)]
        for each in ranks:
            each.load_state_dict(self.state or each.state_dict())
        return ranks

    def train(self, ranks: list[Batches], steps: int) -> None:
        """Take steps on all ranks, record their rows, and save the state."""
        for _ in range(steps):
            step = ranks[0].step
            whole, dealt = ranks[0].rows_of_ranks(step)
            assert sorted(dealt.reshape(-1).tolist()) == list(range(len(whole.sequences)))
            assert all(each.advance() is not None for each in ranks)
            self.digests.append(ranks[0].digest(step))
            sources = ranks[0].state_dict()["sources"]
            lists = whole.sources.tolist(), whole.epochs.tolist(), whole.sequences.tolist()
            for source, *row in zip(*lists, strict=True):
                self.rows[sources[source]["plan"]].append(tuple(row))
        self.state = through_json(ranks[0].state_dict())


def expected_rows(source: MixtureSource, number: int, count: int) -> list[tuple[int, int]]:
    """The first rows of a source that is the n-th of its run."""
    order = Order(steps_of(source.plan), seed_of_source(SEED, number))
    sequences, epochs = order.across_epochs(0, count)
    return list(zip(epochs.tolist(), sequences.tolist(), strict=True))


shares = st.sampled_from([0.0, 0.1, 1.0, 2.5])
sizes = st.sampled_from([24, 48]) | st.sampled_from([((0, 24), (9, 48)), ((0, 48), (5, 24))])


@st.composite
def legs(draw: st.DrawFn) -> dict[str, Any]:
    """The names of the sources of a leg, their shares, its batch size, ranks and steps."""
    names = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    found = [draw(shares) for _ in names]
    found[0] = found[0] or 1.0
    return {
        "names": names,
        "shares": found,
        "size": draw(sizes),
        "ranks": draw(st.sampled_from(RANKS)),
        "steps": draw(st.integers(0, 7)),
        "is_killed": draw(st.booleans()),
        "ranks_after": draw(st.sampled_from(RANKS)),
    }


@random_trials(20, 1000, chain=st.lists(legs(), min_size=1, max_size=5))
def test_an_amended_run_gives_each_row_once_and_replays(
    chain: list[dict[str, Any]], source_of: Callable[..., MixtureSource]
) -> None:
    trainer = Trainer(source_of)
    for leg in chain:
        trainer.train(trainer.open(leg, leg["ranks"]), leg["steps"])
        for lost in trainer.open(leg, leg["ranks_after"]) if leg["is_killed"] else ():
            assert lost.advance() is not None

    last = trainer.open(chain[-1], 1)[0]
    assert last.step == len(trainer.digests)
    assert [last.digest(step) for step in range(last.step)] == trainer.digests
    for number, state in enumerate(trainer.state["sources"]):
        rows = trainer.rows[state["plan"]]
        assert rows == expected_rows(source_of(state["name"]), number, len(rows))


# Plans alone.


PLANS = ("packed", "one piece a row", "buckets")
PLAN_SIZES = {
    "packed": [{"rows": 24}, {"tokens": 16 * 24}, {"rows": ((0, 24), (4, 48))}],
    "one piece a row": [{"rows": 24}, {"rows": 72}],
    "buckets": [{"rows": 24}, {"tokens": 32 * 24}],
}


@st.composite
def plan_legs(draw: st.DrawFn) -> dict[str, Any]:
    plan = draw(st.sampled_from(PLANS))
    size = draw(st.sampled_from(PLAN_SIZES[plan]))
    return {"plan": plan, "size": size, "steps": draw(st.integers(0, 6))}


def by_length(plan: Plan, rows: list[tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
    lengths = plan_row_lengths(plan)
    found = defaultdict(list)
    for epoch, sequence in rows:
        found[int(lengths[sequence])].append((epoch, sequence))
    return found


def expected_series(plan: Plan, number: int, length: int, count: int) -> list[tuple[int, int]]:
    """The first rows of a length; those of one of several lengths have an order of their own."""
    lengths = plan_row_lengths(plan)
    members = np.flatnonzero(lengths == length)
    seed, steps = seed_of_source(SEED, number), steps_of(plan)
    if len(plan.rows.row_lengths) > 1:
        seed = xxhash.xxh3_64_intdigest(f"{seed} {length}".encode())
        steps = Steps(1, np.array([0, len(members)]))
    sequences, epochs = Order(steps, seed).across_epochs(0, count)
    return list(zip(epochs.tolist(), members[sequences].tolist(), strict=True))


@random_trials(20, 1000, chain=st.lists(plan_legs(), min_size=1, max_size=5))
def test_a_run_may_go_on_with_other_plans_and_come_back(
    chain: list[dict[str, Any]], corpora: list[Path]
) -> None:
    dataset = tokenmill.open(corpora[0])
    rows: Rows = defaultdict(list)
    digests, state = [], None
    for leg in chain:
        [(unit, size)] = leg["size"].items()
        if state is not None:
            state = tokenmill.amend(
                state, plan=leg["plan"], **{f"global_batch_{NAMES[unit]}": size}
            )
        batches = dataset.batches(leg["plan"], **{LOADERS[unit]: size}, seed=SEED, epochs=None)
        batches.load_state_dict(state or batches.state_dict())
        for step in range(batches.step, batches.step + leg["steps"]):
            whole = batches.global_batch(step)
            assert whole is not None
            assert batches.advance() is not None
            digests.append(batches.digest(step))
            rows[leg["plan"]] += zip(whole.epochs.tolist(), whole.sequences.tolist(), strict=True)
        state = through_json(batches.state_dict())
    assert [batches.digest(step) for step in range(batches.step)] == digests
    numbers = {source["plan_name"]: number for number, source in enumerate(state["sources"])}
    for name, given_rows in rows.items():
        plan = tokenmill.open_plan(dataset, name)
        for length, part in by_length(plan, given_rows).items():
            assert part == expected_series(plan, numbers[name], length, len(part))


NAMES = {"rows": "size", "tokens": "tokens"}
LOADERS = {"rows": "global_batch_size", "tokens": "tokens_per_batch"}


def test_a_ramp_changes_the_batch_at_its_steps(corpora: list[Path]) -> None:
    dataset = tokenmill.open(corpora[0])
    ramp = [[0, 1], [2, 3], [5, 8]]
    batches = dataset.batches("packed", global_batch_size=ramp, epochs=2)
    sizes = [len(batch["input_ids"]) for batch in batches]
    assert sizes[:7] == [1, 1, 3, 3, 3, 8, 8]
    assert set(sizes[7:]) == {8}
    assert len(batches) == len(sizes)
    plan = tokenmill.open_plan(dataset, "packed")
    assert batches.rows_left == 2 * len(plan) - sum(sizes)
    with pytest.raises(UserError, match="cannot be a ramp"):
        dataset.batches("buckets", global_batch_size=ramp)
    with pytest.raises(UserError, match="sorted by step"):
        dataset.batches("packed", global_batch_size=((1, 4), (0, 8)))


def test_a_plan_becomes_one_source_of_a_mixture(
    corpora: list[Path], source_of: Callable[..., MixtureSource]
) -> None:
    dataset = tokenmill.open(corpora[0])
    alone = dataset.batches("packed", global_batch_size=24, seed=SEED, epochs=None)
    found = [alone.global_batch(step).sequences.tolist() for step in range(2)]
    sources = [source_of("a", share=0.5), source_of("b", share=0.5)]
    state = tokenmill.amend(alone.state_dict(2), sources=sources)
    mixed = tokenmill.mix_batches(sources, global_batch_size=24, seed=SEED)
    mixed.load_state_dict(through_json(state))
    for step in range(2, 5):
        whole = mixed.global_batch(step)
        found.append(whole.sequences[whole.sources == 0].tolist())
    rows = [row for step in found for row in step]
    assert rows == [row for _, row in expected_rows(sources[0], 0, len(rows))]
    assert len(rows) < 24 * 5
    report = mixed.schedule.report()
    assert [each.name for each in report] == ["a", "b"]
    tokens = token_counts(sources[0].plan, np.array(rows[: report[0].rows]))
    assert report[0].tokens == tokens.sum()


# Shares that the trainer sets.


@pytest.mark.parametrize("prefetch", [0, 3])
def test_shares_are_set_between_two_steps(
    prefetch: int, source_of: Callable[..., MixtureSource]
) -> None:
    sources = [source_of("a", share=1.0), source_of("b", share=1.0)]

    def opened() -> Loader:
        return tokenmill.mix(sources, global_batch_size=24, seed=SEED, prefetch=prefetch)

    loader, counts, digests = opened(), [], []
    for step, _ in enumerate(loader):
        digests.append(loader.digest(step))
        counts.append(loader.stats()["tokens/a"])
        if step == 1:
            loader.set_shares({"a": 0.0})
        if step == 3:
            loader.set_shares({"a": 3.0})
        if step == 5:
            break
    taken = np.diff([0, *counts])
    assert (taken[2:4] == 0).all()
    assert (taken[[0, 1, 4, 5]] > 0).all()
    again = opened()  # with the shares of the beginning
    again.load_state_dict(through_json(loader.state_dict()))
    assert [again.digest(step) for step in range(6)] == digests
    assert loader.digest(7) == again.digest(7)
    assert [leg["first_step"] for leg in loader.state_dict()["legs"]] == [0, 2, 4]
    before = opened()
    before.load_state_dict(through_json(again.state_dict(1)))
    assert before.state_dict()["legs"] == []
    with pytest.raises(UserError, match="no source 'c'"):
        loader.set_shares({"c": 1.0})
    with pytest.raises(UserError, match="at least one share"):
        loader.set_shares({"a": 0.0, "b": 0.0})


def test_shares_cannot_be_set_where_workers_are_ahead(
    corpora: list[Path], source_of: Callable[..., MixtureSource]
) -> None:
    loader = tokenmill.mix([source_of("a"), source_of("b")], global_batch_size=24)
    next(iter(loader.dataloader(1)))
    with pytest.raises(UserError, match="cannot set shares"):
        loader.set_shares({"a": 2.0})
    alone = tokenmill.open(corpora[0]).batches("packed", global_batch_size=24)
    with pytest.raises(UserError, match="not one of a mixture"):
        alone.set_shares({"0": 1.0})


# States.


def test_a_state_of_ten_legs_is_small(source_of: Callable[..., MixtureSource]) -> None:
    sources = [source_of(name, share=0.123456) for name in "abc"]
    batches = tokenmill.mix_batches(sources, global_batch_size=24, seed=2**62)
    state = batches.state_dict(100)
    for number in range(10):
        names = dict.fromkeys("abc", 0.1 + number / 7)
        state = tokenmill.amend(state, shares=names, global_batch_size=24 * (number + 1))
        sources = [source_of(name, share=share) for name, share in names.items()]
        batches = tokenmill.mix_batches(sources, global_batch_size=24 * (number + 1), seed=2**62)
        batches.load_state_dict(through_json(state))
        state = through_json(batches.state_dict(batches.step + 100))
    assert [leg["first_step"] for leg in state["legs"]] == [*range(0, 1001, 100)]
    assert len(json.dumps(state)) < 4096


def test_a_state_names_the_way_where_a_leg_would_be_needed(corpora: list[Path]) -> None:
    dataset = tokenmill.open(corpora[0])
    state = dataset.batches("packed", global_batch_size=24).state_dict(1)
    error = refused(lambda: dataset.batches("packed", global_batch_size=48).load_state_dict(state))
    assert error.why == "rows of a global batch: 24 in the state, 48 here"
    assert "tokenmill.amend" in error.hint


def test_what_does_not_fit_to_a_run_is_refused(
    corpora: list[Path], source_of: Callable[..., MixtureSource], tmp_path: Path
) -> None:
    dataset = tokenmill.open(corpora[0])
    state = dataset.batches("packed", global_batch_size=24).state_dict(1)
    mixed = tokenmill.mix_batches([source_of("a")], global_batch_size=24).state_dict(1)
    plan = tokenmill.open_plan(dataset, "packed")
    curriculum = Curriculum.of_plan(plan, dataset, batch_size=4)
    elsewhere = through_json(state)
    elsewhere["sources"][0]["tokenizer"] = "0" * 64
    cases = {
        "nothing to amend": lambda: tokenmill.amend(state),
        "give one size of a global batch": lambda: tokenmill.amend(
            state, global_batch_size=1, global_batch_tokens=1
        ),
        "a run cannot change its tokenizer": lambda: tokenmill.amend(elsewhere, plan="buckets"),
        "cannot amend the run of a curriculum": lambda: tokenmill.amend(
            dataset.batches(plan, curriculum=curriculum).state_dict(1), global_batch_size=8
        ),
        "the mixture has no source 'x'": lambda: tokenmill.amend(mixed, shares={"x": 1}),
        "a mixture has no plan of its own": lambda: tokenmill.amend(mixed, plan="packed"),
        "a share must be between 0 and 1e+09": lambda: tokenmill.amend(mixed, shares={"a": -1}),
        "the points of a batch size must be sorted by step": lambda: tokenmill.amend(
            state, global_batch_size=((5, 24),)
        ),
        "shares must be a mapping": lambda: tokenmill.amend(mixed, shares=[1, 2]),
        "invalid size of a global batch": lambda: tokenmill.amend(state, global_batch_size=0),
        "give sources or a plan": lambda: tokenmill.amend(
            state, plan="buckets", sources=[source_of("a")]
        ),
        "cannot find the plan 'packt'": lambda: tokenmill.amend(state, plan="packt"),
        "not the state of a loader": lambda: tokenmill.amend({"step": 1}, global_batch_size=8),
    }
    assert {what: refused(call).what for what, call in cases.items()} == {w: w for w in cases}


def test_legs_that_contradict_each_other_are_refused(
    source_of: Callable[..., MixtureSource],
) -> None:
    sources = [source_of("a"), source_of("b")]
    batches = tokenmill.mix_batches(sources, global_batch_size=24)
    state = tokenmill.amend(batches.state_dict(2), shares={"a": 2.0})
    fit = tokenmill.mix_batches([source_of("a", share=2.0), source_of("b")], global_batch_size=24)
    fit.load_state_dict(through_json(state))
    for number, name, value in [
        (0, "first_step", 1),
        (1, "first_step", 3),
        (1, "sources", [0, 7]),
        (1, "sources", []),
        (1, "epochs", [1, 1, 1]),
        (0, "order", {"shares": [[]]}),
        (0, "global_batch", {"rows": 0}),
    ]:
        damaged = through_json(state)
        damaged["legs"][number][name] = value
        assert refused(lambda: (fit.load_state_dict(damaged), fit.digest(0)))  # noqa: B023


def test_earlier_steps_need_their_data(
    corpora: list[Path], source_of: Callable[..., MixtureSource], tmp_path: Path
) -> None:
    moved = shutil.copytree(corpora[1], tmp_path / "moved")
    gone = MixtureSource.of(moved, "packed", epochs=None)
    batches = tokenmill.mix_batches([gone], global_batch_size=24)
    first = batches.digest(0)
    stays = source_of("a")
    state = tokenmill.amend(batches.state_dict(1), sources=[stays])
    shutil.rmtree(moved)
    later = tokenmill.mix_batches([stays], global_batch_size=24)
    later.load_state_dict(state)
    assert later.advance() is not None
    error = refused(lambda: later.digest(0))
    assert error.what == "a dataset of the state is missing"
    assert str(moved) in error.why
    run = open_run(checked_state(state), [tokenmill.open(corpora[1])])
    assert run.digest(0) == first

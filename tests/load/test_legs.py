"""Legs of a run: a run that is amended gives each row once, and can be replayed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resume_kit import through_json, write_corpora

import tokenmill
from tokenmill.load.batches import Batches
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.load.steps.order import Order, steps_of
from tokenmill.load.steps.schedule import seed_of_source

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


@settings(max_examples=60, deadline=None)
@given(chain=st.lists(legs(), min_size=1, max_size=5))
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

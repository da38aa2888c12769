"""What a run has given, and when: as a training loop recorded it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resume_kit import through_json, write_corpora

import tokenmill
from tokenmill.load.batches import Batches
from tokenmill.load.seen import Seen
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.load.steps.state import checked_state

SEED = 5
Recorded = dict[tuple[int, int], list[tuple[int, int, int]]]
"""Of each source and sequence: step, epoch and rank of each use."""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    found = write_corpora(tmp_path_factory.mktemp("corpora"))[3]
    options: dict[str, Any] = {"packing": "balanced", "ranks": 2, "sequence_length": 40}
    tokenmill.pack(found[0], name="balanced", **options)
    return found


@pytest.fixture(scope="module")
def source_of(corpora: list[Path]) -> Callable[..., MixtureSource]:
    return lambda name, **options: MixtureSource.of(
        corpora["abc".index(name)], "packed", epochs=None, name=name, **options
    )


def train(batches: Batches, steps: int, recorded: Recorded) -> dict[str, Any]:
    """Take steps, record what each rank gets, and return the state."""
    numbers = {each["plan"]: n for n, each in enumerate(batches.state_dict()["sources"])}
    assert len(numbers) == len(batches.state_dict()["sources"])
    for _ in range(steps):
        if batches.global_batch(batches.step) is None:
            break
        whole, dealt = batches.rows_of_ranks(batches.step)
        for rank, rows in enumerate(dealt.tolist()):
            for row in rows:
                key = int(whole.sources[row]), int(whole.sequences[row])
                recorded[key].append((batches.step, int(whole.epochs[row]), rank))
        assert batches.advance() is not None
    return through_json(batches.state_dict())


def check(state: dict[str, Any], recorded: Recorded) -> Seen:
    """Compare the uses of all sequences of all sources with those that were recorded."""
    seen = Seen(checked_state(state))
    found: Recorded = defaultdict(list)
    for source, each in enumerate(state["sources"]):
        plan = tokenmill.open_plan(each["location"], each["plan_name"])
        sequences = np.random.default_rng(0).permutation(len(plan))
        uses = seen.uses(source, sequences)
        times = [len(recorded.get((source, sequence), ())) for sequence in sequences.tolist()]
        assert seen.times(source, sequences).tolist() == times
        ranks = seen.ranks(source, sequences, uses)
        lists = uses.members, uses.steps, uses.epochs, ranks
        for member, *use in zip(*(each.tolist() for each in lists), strict=True):
            if 0 <= use[0] < state["step"]:
                found[source, int(sequences[member])].append(tuple(use))
    assert found == {key: sorted(uses) for key, uses in recorded.items()}
    return seen


PLANS = ["packed", "buckets", "one piece a row", "balanced"]
SIZES = st.sampled_from([12, 24, ((0, 12), (3, 24), (7, 4))])


@st.composite
def plan_legs(draw: st.DrawFn) -> dict[str, Any]:
    plan = draw(st.sampled_from(PLANS))
    return {
        "plan": plan,
        "size": 24 if plan == "buckets" else draw(SIZES),
        "ranks": draw(st.sampled_from([1, 2, 4])),
        "steps": draw(st.integers(1, 12)),
    }


@settings(max_examples=60, deadline=None)
@given(
    chain=st.lists(plan_legs(), min_size=1, max_size=4),
    shuffle=st.sampled_from(["global", "blocks", "none"]),
)
def test_the_uses_of_sequences_of_plans_are_those_of_the_training(
    chain: list[dict[str, Any]], shuffle: str, corpora: list[Path]
) -> None:
    dataset = tokenmill.open(corpora[0])
    recorded: Recorded = defaultdict(list)
    state: dict[str, Any] = {}
    for leg in chain:
        if state:
            state = tokenmill.amend(state, plan=leg["plan"], global_batch_size=leg["size"])
        options = {"global_batch_size": leg["size"], "seed": SEED, "epochs": None}
        ranks = {"rank": 0, "world_size": leg["ranks"], "shuffle": shuffle}
        batches = dataset.batches(leg["plan"], **options, **ranks)
        batches.load_state_dict(state or batches.state_dict())
        state = train(batches, leg["steps"], recorded)
    seen = check(state, recorded)

    # What comes until the end of the epoch is what the training would go on with.
    source = next(
        n for n, each in enumerate(state["sources"]) if each["plan_name"] == chain[-1]["plan"]
    )
    plan = tokenmill.open_plan(dataset, chain[-1]["plan"])
    sequences = np.arange(len(plan))
    uses = seen.uses(source, sequences)
    if chain[-1]["plan"] != "balanced":  # which leaves out sequences outside groups
        assert np.unique(uses.members).tolist() == sequences.tolist()
    to_come = {
        (int(sequences[member]), step, epoch)
        for member, step, epoch in zip(
            uses.members.tolist(), uses.steps.tolist(), uses.epochs.tolist(), strict=True
        )
        if step >= state["step"]
    }
    last = max((step for _, step, _ in to_come), default=0)
    expected = set()
    for step in range(state["step"], last + 1):
        whole = batches.global_batch(step)
        assert whole is not None
        lists = whole.sequences.tolist(), whole.epochs.tolist()
        expected |= {(sequence, step, epoch) for sequence, epoch in zip(*lists, strict=True)}
    assert to_come <= expected
    present = min((epoch for _, _, epoch in to_come), default=0)
    if len(plan.rows.row_lengths) == 1:
        assert to_come == {each for each in expected if each[2] == present}


@st.composite
def mixed_legs(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    shares = [draw(st.sampled_from([0.0, 0.1, 1.0, 2.5])) for _ in names]
    shares[0] = shares[0] or 1.0
    return {
        "names": names,
        "shares": shares,
        "size": draw(SIZES),
        "ranks": draw(st.sampled_from([1, 2, 4])),
        "steps": draw(st.integers(1, 12)),
    }


@settings(max_examples=40, deadline=None)
@given(chain=st.lists(mixed_legs(), min_size=1, max_size=4))
def test_the_uses_of_sequences_of_mixtures_are_those_of_the_training(
    chain: list[dict[str, Any]], source_of: Callable[..., MixtureSource]
) -> None:
    recorded: Recorded = defaultdict(list)
    state: dict[str, Any] = {}
    for leg in chain:
        names = zip(leg["names"], leg["shares"], strict=True)
        sources = [source_of(name, share=share) for name, share in names]
        if state:
            state = tokenmill.amend(state, sources=sources, global_batch_size=leg["size"])
        options = {"global_batch_size": leg["size"], "seed": SEED}
        ranks = {"rank": 0, "world_size": leg["ranks"]}
        batches = tokenmill.mix_batches(sources, **options, **ranks)
        batches.load_state_dict(state or batches.state_dict())
        state = train(batches, leg["steps"], recorded)
    seen = check(state, recorded)

    # Each sequence of a present source was given in its epoch, or will be at an unknown step.
    for name in chain[-1]["names"]:
        number = next(n for n, each in enumerate(state["sources"]) if each["name"] == name)
        uses = seen.uses(number, np.arange(len(source_of(name).plan)))
        latest = uses.epochs == uses.epochs.max()
        assert sorted(uses.members[latest].tolist()) == list(range(len(source_of(name).plan)))
        assert (uses.steps[latest] == -1).any()


def test_the_steps_of_a_long_leg_are_found_from_its_end(
    source_of: Callable[..., MixtureSource],
) -> None:
    """The schedule keeps some positions only, and its first step is a multiple of nothing."""
    recorded: Recorded = defaultdict(list)
    sources = [source_of("a"), source_of("b")]
    batches = tokenmill.mix_batches(sources, global_batch_size=1, seed=SEED)
    train(batches, 1, recorded)
    batches.set_shares({"b": 2.0})
    seen = check(train(batches, 600, recorded), recorded)
    assert seen.batches.digest(1) == batches.digest(1)

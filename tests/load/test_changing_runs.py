"""Random chains of amendments, down to single tokens: what each run gave is what it should give."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resume_kit import sharded, through_json

import tokenmill
from tokenmill import Dataset
from tokenmill.core.errors import UserError
from tokenmill.load.opening import open_run
from tokenmill.load.steps.state import checked_state
from tokenmill.store.plan import Plan
from tokenmill.store.view import write_view

RANKS = (1, 3, 8)
OVER = {"nothing to pack", "not enough rows for one global batch"}
"""What is said when nothing, or less than a batch, is left of the epoch."""
Token = tuple[int, int]
"""Document and position of a token."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sharded(tmp_path_factory.mktemp("changing") / "corpus", per_shard=30)


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """A leg: what changes, the ranks, the steps, and whether the run is killed after it."""
    kind = draw(st.sampled_from(["size", "rest", "rest", "taken out"]))
    return {
        "kind": kind,
        "rows": draw(st.sampled_from([24, 48])),
        "length": draw(st.sampled_from([8, 16, 24])),
        "packing": draw(st.sampled_from(["best-fit", "concat-and-chunk", "next-fit"])),
        "without": draw(st.sets(st.integers(0, 89), min_size=1, max_size=40)),
        "ranks": draw(st.sampled_from(RANKS)),
        "steps": draw(st.integers(0, 4)),
        "is_killed": draw(st.booleans()),
    }


class ChangingRun:
    """One epoch of a dataset, of which documents are taken out, in rows that change."""

    def __init__(self, dataset: Dataset, folder: Path) -> None:
        self.root, self.folder = dataset, folder
        self.dataset, self.plan, self.rows = dataset, "packed", 24
        self.kept = np.ones(dataset.num_documents, np.bool_)
        self.given: Counter[Token] = Counter()
        self.digests: list[str] = []
        self.state = self.open(1)[0].state_dict()

    def open(self, ranks: int) -> list[tokenmill.Batches]:
        """The batches of each rank, at the state of the run."""
        found = [
            self.dataset.batches(
                self.plan, global_batch_size=self.rows, rank=rank, world_size=ranks
            )
            for rank in range(ranks)
        ]
        for each in found if self.digests else ():
            each.load_state_dict(self.state)
        return found

    def change(self, leg: dict[str, Any], number: int) -> None:
        """Amend the state as a leg says, unless no row would be left."""
        self.rows = leg["rows"]
        if not self.digests:
            return
        amendment: dict[str, Any] = {"global_batch_size": self.rows}
        if leg["kind"] == "taken out":
            self.kept[list(leg["without"])] = False
            self.dataset = self.view(number)
        if leg["kind"] != "size":
            options = {"sequence_length": leg["length"], "packing": leg["packing"]}
            place = self.folder / f"plan-{number}"
            tokenmill.pack(self.dataset, rest_of=self.state, folder=place, **options)
            self.plan = str(place)
            amendment |= {"dataset": self.dataset, "plan": place}
        self.state = through_json(tokenmill.amend(self.state, **amendment))

    def view(self, number: int) -> Dataset:
        """A view of the documents that are left."""
        starts = np.cumsum([0, *(shard.entry.documents for shard in self.root.shards)])
        masks = [self.kept[a:b] for a, b in pairwise(starts)]
        folder = self.folder / f"view-{number}"
        return Dataset(write_view(folder, [self.root], iter(masks), ["left"]))

    def train(self, ranks: int, steps: int) -> None:
        """Take steps on all ranks while there are any, and record every token that is given."""
        batches = self.open(ranks)
        first = batches[0]
        for step in range(first.step, first.step + steps):
            if first.global_batch(step) is None:
                break
            given = [each.advance() for each in batches]
            assert sum(len(each["input_ids"]) for each in given) == self.rows
            self.digests.append(first.digest(step))
            for part in first.explain(step):
                places = range(part.start, part.start + part.length)
                self.given.update((part.document, place) for place in places)
                assert self.kept[part.document]
        self.state = through_json(first.state_dict())


def tokens_of(dataset: Dataset, kept: np.ndarray) -> set[Token]:
    lengths = np.concatenate([shard.lengths for shard in dataset.shards])
    chosen = np.flatnonzero(kept).tolist()
    return {(document, place) for document in chosen for place in range(lengths[document])}


def tokens_in(plan: Plan) -> set[Token]:
    segments = zip(
        plan.documents.tolist(), plan.starts.tolist(), plan.lengths.tolist(), strict=True
    )
    return {
        (document, place)
        for document, start, length in segments
        for place in range(start, start + length)
    }


@pytest.mark.parametrize("examples", [30, pytest.param(1000, marks=pytest.mark.soak)])
def test_each_token_is_given_once_however_the_run_changes(examples: int, dataset: Dataset) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(chain=st.lists(changes(), min_size=1, max_size=5))
    def check(chain: list[dict[str, Any]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = ChangingRun(dataset, Path(folder))
            ended = False
            for number, leg in enumerate(chain):
                try:
                    run.change(leg, number)
                    run.train(leg["ranks"], leg["steps"])
                    if leg["is_killed"]:
                        run.open(RANKS[number % 3])[0].advance()
                except UserError as error:
                    if error.what not in OVER:
                        raise
                    ended = True
                    break
            again = open_run(checked_state(run.state))
            assert [again.digest(step) for step in range(len(run.digests))] == run.digests
            if not ended:
                run.train(1, 1000)
            assert set(run.given.values()) <= {1}
            missing = tokens_of(dataset, run.kept) - run.given.keys()
            if missing:  # what fills no batch
                rest = tokenmill.pack(
                    run.dataset, rest_of=run.state, sequence_length=64, folder=f"{folder}/rest"
                )
                assert missing == tokens_in(rest.plan)

    check()

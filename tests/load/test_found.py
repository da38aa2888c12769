"""When a run gives what was found: as the steps of the run say themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from resume_kit import through_json, write_corpora

import tokenmill
from tokenmill.core.errors import UserError
from tokenmill.load.batches import Batches
from tokenmill.load.steps.mixture import MixtureSource
from view_kit import view_of

SOUGHT = 9
"""The id of the token that is looked for."""
Given = dict[int, set[tuple[str, int, int, int]]]
"""Of each document: source, sequence, step and epoch."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Batches]:
    """Datasets and a view of the first one, and a run of all of them with two legs."""
    folder = tmp_path_factory.mktemp("run")
    folders = write_corpora(folder)[3][:2]
    parent = tokenmill.open(folders[0])
    view = view_of(folder / "view", [parent], range(0, parent.num_documents, 3))
    tokenmill.pack(view, name="packed", sequence_length=16)
    folders.append(view.folder)
    names = zip("abv", folders, strict=True)
    sources = [MixtureSource.of(each, "packed", epochs=None, name=name) for name, each in names]
    batches = tokenmill.mix_batches(sources, global_batch_size=6)
    for step in range(40):
        if step == 15:
            batches.set_shares({"b": 3.0})
        assert batches.advance() is not None
    return folders, batches


def given_by_steps(batches: Batches, dataset: tokenmill.Dataset, names: set[str]) -> Given:
    """Which documents have the token in which rows of these sources, step by step."""
    found: Given = {}
    for step in range(batches.step):
        for each in batches.explain(step):
            name = "abv"[each.plan]
            if name in names:
                shard, index = dataset.locate(each.document)
                ids = shard.document(index)[each.start : each.start + each.length]
                if SOUGHT in ids.tolist():
                    use = (name, each.sequence, step, each.epoch)
                    found.setdefault(each.document, set()).add(use)
    return found


@pytest.mark.parametrize(("number", "names"), [(0, {"a", "v"}), (1, {"b"})])
def test_uses_of_documents_are_those_of_the_steps(
    number: int, names: set[str], run: tuple[list[Path], Batches]
) -> None:
    """Those of a view are found in the dataset behind it, by the same numbers."""
    folders, batches = run
    dataset = tokenmill.open(folders[number])
    state = through_json(batches.state_dict())
    found = tokenmill.find(dataset, str(SOUGHT), state=state)
    given = {
        each.document: {
            (use.source, use.sequence, use.step, use.epoch)
            for use in each.uses or []
            if use.is_given
        }
        for each in found.documents
    }
    expected = given_by_steps(batches, dataset, names)
    assert {document: uses for document, uses in given.items() if uses} == expected
    assert all(
        (use.step is None) == (use.rank is None) == (not use.is_given)
        for each in found.documents
        for use in each.uses or []
    )


def test_documents_of_a_view_are_found_in_the_run_of_its_dataset(
    run: tuple[list[Path], Batches],
) -> None:
    folders, batches = run
    parent, view = map(tokenmill.open, (folders[0], folders[2]))
    in_parent = tokenmill.find(parent, str(SOUGHT), state=batches.state_dict()).documents
    in_view = tokenmill.find(view, str(SOUGHT), state=batches.state_dict()).documents
    uses = {each.document: each.uses for each in in_parent}
    assert in_view
    assert {each.document: each.uses for each in in_view} == {
        each.document: uses[each.document] for each in in_view
    }


def test_what_a_plan_alone_gives_later_has_steps(run: tuple[list[Path], Batches]) -> None:
    folders, _ = run
    dataset = tokenmill.open(folders[0])
    batches = dataset.batches("packed", global_batch_size=4, epochs=2)
    for _ in range(3):
        assert batches.advance() is not None
    found = tokenmill.find(dataset, str(SOUGHT), state=batches.state_dict()).documents
    for each in found:
        for use in each.uses or []:
            assert use.step is not None
            whole = batches.global_batch(use.step)
            assert whole is not None
            rows = np.flatnonzero(whole.sequences == use.sequence)
            assert use.epoch in whole.epochs[rows].tolist()
            assert (use.rank, use.is_given) == (0, use.step < 3)
    assert {use.is_given for each in found for use in each.uses or []} == {True, False}


def test_data_that_the_run_has_not_is_refused(run: tuple[list[Path], Batches]) -> None:
    folders, _ = run
    batches = tokenmill.open(folders[0]).batches("packed", global_batch_size=4)
    with pytest.raises(UserError, match="the run of the state has none of this data"):
        tokenmill.find(folders[1], "9", state=batches.state_dict())

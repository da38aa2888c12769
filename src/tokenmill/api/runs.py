"""`tokenmill.amend` and `provenance`: the run of a state, changed, and what it has given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tokenmill.api.datasets import opened
from tokenmill.core.records import Advance
from tokenmill.load.legs import LegSource, amended
from tokenmill.load.steps.batch_size import BatchSize
from tokenmill.load.steps.mixture import names_of
from tokenmill.load.steps.state import read_state
from tokenmill.reports.given_data import GivenData
from tokenmill.reports.provenance import provenance_of

if TYPE_CHECKING:
    from tokenmill.api.options import Ramp
    from tokenmill.load.steps.mixture import MixtureSource
    from tokenmill.store.dataset import Dataset
    from tokenmill.store.plan import Plan


def amend(
    state: Mapping[str, Any],
    *,
    shares: Mapping[str, float] | None = None,
    sources: Sequence[MixtureSource] | None = None,
    dataset: Dataset | str | Path | None = None,
    plan: Plan | str | Path | None = None,
    when_one_ends: Literal["stop", "go on"] | None = None,
    global_batch_size: int | Ramp | None = None,
    global_batch_tokens: int | Ramp | None = None,
) -> dict[str, Any]:
    """Return a state from whose step on a run goes on with other data, shares or batch sizes.

    Load it into a loader that was opened with the new options. Each source goes on where it was:
    within an epoch, no row is lost or given twice. The state names all legs of the run, so that
    `batch`, `explain` and `digest` of the new loader know its earlier steps as well.

        state = tokenmill.amend(state, global_batch_size=128)
        loader = dataset.loader("best-fit-4096", global_batch_size=128)
        loader.load_state_dict(state)

    Args:
        state: the state of a loader, at the step of the change.
        shares: new shares of sources of a mixture by name; the other shares stay as they are.
        sources: all sources of the run from now on, as given to `mix`. A source is the same as
            before if its plan is.
        dataset: the dataset of `plan`, if it is not that of the run; for example a view without
            some documents.
        plan: another plan, for a run without a mixture. `pack(dataset, rest_of=state)` makes one
            of what the run has not seen in its epoch.
        when_one_ends: as for `mix`.
        global_batch_size: rows in a global batch, or points (step, rows) of a ramp.
        global_batch_tokens: tokens in a global batch, or points (step, tokens) of a ramp.

    Raises:
        UserError: nothing changes, an option is invalid or contradicts another one, the new data
            has another tokenizer, or the state is one of a curriculum.
    """
    new = None
    if sources is not None:
        named = zip(sources, names_of(sources), strict=True)
        new = [LegSource.of(replace(source, name=name)) for source, name in named]
    sizes = (global_batch_size, global_batch_tokens)
    found = amended(
        read_state(state),
        new,
        shares=shares,
        dataset=dataset,
        plan=plan,
        global_batch=None if sizes == (None, None) else BatchSize.of(*sizes),
        when_one_ends=when_one_ends,
    )
    return msgspec.to_builtins(found)  # type: ignore[no-any-return]


def provenance(
    state: Mapping[str, Any] | str | Path,
    *,
    datasets: Sequence[Dataset | str | Path] = (),
    by: str | None = None,
    advance: Advance = lambda stage, done, total: None,
) -> GivenData:
    """Return what a run has given before the step of its state, over all its legs.

    Documents and tokens are counted exactly from the plans, by source of the run and by input of
    the datasets; `statement()` of the result is a data statement in Markdown.

        given = tokenmill.provenance(loader.state_dict(), by="license")
        given.amount.tokens, given.values["cc-by-4.0"].documents

    Args:
        state: the state of a loader, or a JSON file with one.
        datasets: datasets of the run or their folders, if they are not where they were.
        by: a column that was kept with `build --keep`, or `subset`: also count by its values.
        advance: called with a stage, the amount done and the total, to show progress.

    Raises:
        UserError: data is missing, no dataset has the column, or the state is one of a curriculum.
        VerificationError: a plan or a dataset is damaged.
    """
    return provenance_of(read_state(state), [opened(each) for each in datasets], by, advance)

"""`tokenmill.provenance`: what a training run has given until a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenmill.api.datasets import opened
from tokenmill.core.records import Advance
from tokenmill.load.steps.state import checked_state, read_state
from tokenmill.reports.given_data import GivenData
from tokenmill.reports.provenance import provenance_of
from tokenmill.store.dataset import Dataset


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
    values = checked_state(dict(state)) if isinstance(state, Mapping) else read_state(state)
    return provenance_of(values, [opened(each) for each in datasets], by, advance)

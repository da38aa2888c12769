"""`tokenmill.amend`: change what a training run goes on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tokenmill.load.legs import LegSource, amended
from tokenmill.load.steps.batch_size import BatchSize
from tokenmill.load.steps.mixture import names_of
from tokenmill.load.steps.state import checked_state

if TYPE_CHECKING:
    from pathlib import Path

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
        checked_state(dict(state)),
        new,
        shares=shares,
        dataset=dataset,
        plan=plan,
        global_batch=None if sizes == (None, None) else BatchSize.of(*sizes),
        when_one_ends=when_one_ends,
    )
    return msgspec.to_builtins(found)  # type: ignore[no-any-return]

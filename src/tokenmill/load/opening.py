"""Create batches from the options of a loader, and check them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.core.options import make_structs
from tokenmill.load.batches import Batches
from tokenmill.load.columns import BatchOptions, MaskedLM
from tokenmill.load.fill_in_middle import CUTS_ROWS, FillInMiddle
from tokenmill.load.legs import sources_of
from tokenmill.load.rows.reader import RowReader, Targets
from tokenmill.load.sources import open_source
from tokenmill.load.steps.batch_size import BatchSize, OrderOptions
from tokenmill.load.steps.curriculum import Curriculum, CurriculumSchedule
from tokenmill.load.steps.mixture import MixtureSchedule, MixtureSource
from tokenmill.load.steps.plan_schedule import PlanSchedule
from tokenmill.load.steps.schedule import Schedule
from tokenmill.load.steps.state import LoaderState, decoded
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan, chosen_plan

if TYPE_CHECKING:
    from tokenmill.load.loader import Loader

LOADER_OPTIONS = (OrderOptions, BatchOptions, Targets)
"""The structs of all options of a loader."""


def open_batches(
    dataset: Dataset,
    plan: Plan | str | Path | None = None,
    *,
    curriculum: Curriculum | None = None,
    may_be_empty: bool = False,
    **options: Any,
) -> Batches:
    """Return the batches of a plan, which must have a step unless it `may_be_empty`.

    Other options are the fields of OrderOptions, BatchOptions and Targets.

    Raises:
        UserError: an option is invalid or unknown, or the plan does not exist.
    """
    own = {"batch_size", "global_batch_size", "tokens_per_batch", "epochs", "shuffle"}
    given = sorted(own & options.keys())
    if curriculum is not None and given:
        why = f"a curriculum sets its own batch size and order; got {', '.join(given)}"
        raise UserError("these options cannot be combined with a curriculum", why=why)
    order, content, targets = make_options(LOADER_OPTIONS, options)
    is_cut = curriculum is not None and bool(curriculum.row_lengths)
    if is_cut and content.fill_in_middle is not None:
        raise UserError("cannot fill in the middle of these rows", why=CUTS_ROWS)
    found = chosen_plan(dataset, plan)
    reader = RowReader(dataset, found, targets, np.dtype(np.int64))
    schedule: Schedule
    if curriculum is None:
        size = order.size()
        schedule = PlanSchedule(
            found, size, seed=order.seed, shuffle=order.shuffle, epochs=order.epochs
        )
    else:
        size = BatchSize(rows=curriculum.batch_size)
        schedule = CurriculumSchedule(found, curriculum)
    if not may_be_empty and schedule.batch(0) is None:
        raise UserError(
            "not enough rows for one global batch",
            where=str(found.folder),
            why=f"it needs {' or '.join(map(str, schedule.row_counts))} rows of one length, and "
            f"there are {schedule.rows_left or len(found)} rows in total",
            hint="use a smaller batch or more epochs",
        )
    return Batches([reader], schedule, size, order, content)


def mix_batches(
    sources: Sequence[MixtureSource],
    *,
    when_one_ends: Literal["stop", "go on"] = "stop",
    may_be_empty: bool = False,
    **options: Any,
) -> Batches:
    """Return the batches of a mixture, with the options of `open_batches` except `curriculum`.

    Raises:
        UserError: an option is invalid or unknown, or the sources cannot be mixed.
    """
    if "epochs" in options:
        raise UserError(
            "epochs cannot be set for a whole mixture", hint="set MixtureSource(epochs=...)"
        )
    order, content, targets = make_options(LOADER_OPTIONS, options)
    size = order.size()
    schedule = MixtureSchedule(sources, size, order.seed, order.shuffle, when_one_ends)
    if not may_be_empty and schedule.batch(0) is None:
        why = f"it needs {schedule.row_counts[0]} rows, and the sources have fewer"
        raise UserError("not enough rows for one global batch", why=why)
    readers = [
        RowReader(source.dataset, source.plan, targets, np.dtype(np.int64)) for source in sources
    ]
    return Batches(readers, schedule, size, order, content)


def open_run(state: LoaderState, datasets: Sequence[Dataset] = ()) -> Batches:
    """Return the batches of a state's run for one rank, with their data from where it was.

    Args:
        state: the state of a loader.
        datasets: open datasets, for data that has moved.

    Raises:
        UserError: data is missing, or the state is one of a curriculum.
    """
    if "curriculum" in state.progress:
        why = "it does not say the seed of the curriculum's order"
        hint = "open its loader, and call explain(step)"
        raise UserError("cannot open the run of a curriculum by its state", why=why, hint=hint)
    options: dict[str, Any] = {"rank": 0, "world_size": 1, "seed": state.seed}
    options["may_be_empty"] = True  # the steps of earlier legs are there
    labels = dict(state.labels)
    if (masked := labels.pop("masked_lm", None)) is not None:
        options["masked_lm"] = decoded(masked, MaskedLM, "a loader")
    if "fill_in_middle" in labels:
        options["fill_in_middle"] = FillInMiddle.of_identity(labels.pop("fill_in_middle"))
    options |= labels
    order, size = state.order, state.global_batch
    options["shuffle"] = order.shuffle or "global"
    options |= {"global_batch_size": size.rows} if size.rows else {"tokens_per_batch": size.tokens}
    sources = sources_of(state)
    opened: list[Dataset] = list(datasets)
    mixed = []
    for source in sources:
        dataset, plan = open_source(source.state, opened)
        opened.append(dataset)
        mixed.append(source.opened(dataset, plan))
    if order.shares:
        batches = mix_batches(mixed, when_one_ends=order.when_one_ends or "stop", **options)
    else:
        only = mixed[0]
        batches = open_batches(only.dataset, only.plan, epochs=only.epochs, **options)
    batches.load_state_dict(msgspec.to_builtins(state), datasets)
    return batches


def make_options(kinds: tuple[type[Any], ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Return one struct of each kind, with the options that are its fields.

    Raises:
        UserError: an option is unknown, or its value is invalid.
    """
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in options.items()
    }
    return make_structs(kinds, plain, "the loader")


def as_tensors(batches: Batches, prefetch: int, pin_memory: bool | None) -> Loader:
    """Wrap batches in a loader that gives PyTorch tensors.

    Raises:
        UserError: PyTorch is not installed, or an option is wrong.
    """
    with needs_torch():
        from tokenmill.load.loader import Loader

    return Loader(batches, prefetch, pin_memory)


@contextmanager
def needs_torch() -> Iterator[None]:
    """Turn the error of a missing PyTorch into a UserError that says how to install it."""
    try:
        yield
    except ImportError as error:
        hint = f"{install_command('torch')}; Dataset.batches gives NumPy arrays without it"
        raise UserError("tensors need PyTorch", why=str(error), hint=hint) from None

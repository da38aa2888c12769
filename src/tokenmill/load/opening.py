"""Create batches from the options of a loader, and check them together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.options import make_structs
from tokenmill.load.batches import Batches, Share
from tokenmill.load.columns import BatchOptions
from tokenmill.load.fill_in_middle import CUTS_ROWS
from tokenmill.load.rows.reader import RowReader, Targets
from tokenmill.load.steps.curriculum import Curriculum, CurriculumSchedule
from tokenmill.load.steps.mixture import MixtureSchedule, MixtureSource
from tokenmill.load.steps.order import Shuffle
from tokenmill.load.steps.schedule import BatchSize, PlanSchedule, Schedule
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan, open_plan

Count = Annotated[int, Meta(ge=1)]


class OrderOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size of a batch, the order of sequences, and the rank."""

    batch_size: Annotated[Count | None, Meta(description="rows per step on each rank")] = None
    global_batch_size: Annotated[Count | None, Meta(description="rows per step, all ranks")] = None
    tokens_per_batch: Annotated[
        Count | None, Meta(description="tokens per step on each rank, if row lengths vary")
    ] = None
    rank: Annotated[int, Meta(ge=0)] | None = None
    world_size: Count | None = None
    seed: Annotated[int, Meta(ge=0)] = 0
    shuffle: Annotated[
        Shuffle, Meta(description="shuffle the whole epoch, within blocks, or not at all")
    ] = "global"
    epochs: Annotated[Count | None, Meta(description="None: repeat without end")] = 1
    restart: Annotated[
        bool, Meta(description="start each pass at the first step, as for validation")
    ] = False
    even_attention: Annotated[
        bool, Meta(description="deal rows so that ranks have similar attention costs")
    ] = True

    def size(self) -> BatchSize:
        """Return the size of a global batch, in rows or tokens.

        Raises:
            UserError: not exactly one size is given.
        """
        given = (self.batch_size, self.global_batch_size, self.tokens_per_batch)
        if sum(value is not None for value in given) != 1:
            raise UserError(
                "give exactly one batch size",
                why=f"batch_size={given[0]}, global_batch_size={given[1]}, "
                f"tokens_per_batch={given[2]}",
                hint="global_batch_size does not change if the number of ranks does",
            )
        if self.tokens_per_batch is not None:
            return BatchSize(tokens=self.tokens_per_batch * (self.world_size or 1))
        rows = (self.batch_size or 0) * (self.world_size or 1)
        return BatchSize(rows=self.global_batch_size or rows)

    def share(self) -> Share:
        """Return the part of each global batch that this rank reads.

        Raises:
            UserError: as for `known_ranks`.
        """
        rank, world_size = known_ranks(self.rank, self.world_size)
        return Share(rank, world_size, self.even_attention, self.restart)


LOADER_OPTIONS = (OrderOptions, BatchOptions, Targets)
"""The structs of all options of a loader."""


def known_ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return this process's rank and the number of ranks: the given ones, or 0 of 1.

    Raises:
        UserError: several processes run and neither is given, or several ranks have one only.
    """
    processes = os.environ.get("WORLD_SIZE", "1")
    if world_size is None and processes.isdecimal() and int(processes) > 1:
        raise UserError(
            "rank and world_size are missing",
            why=f"WORLD_SIZE is {processes}; without them, all processes train on the same rows",
            hint="pass the rank and world_size of data parallelism, or world_size=1",
        )
    if rank is None and (world_size or 1) > 1:
        raise UserError(
            "rank is missing",
            why=f"world_size is {world_size}; without a rank, all ranks train on the same rows",
            hint="pass the rank of this process, for example rank=torch.distributed.get_rank()",
        )
    return rank or 0, world_size or 1


def open_batches(
    dataset: Dataset,
    plan: Plan | str | Path | None = None,
    *,
    curriculum: Curriculum | None = None,
    **options: Any,
) -> Batches:
    """Return the batches of a plan.

    Options are the fields of OrderOptions, BatchOptions and Targets.

    Raises:
        UserError: an option is invalid or unknown, or the plan does not exist.
    """
    given = sorted(
        {"batch_size", "global_batch_size", "tokens_per_batch", "epochs", "shuffle"}.intersection(
            options
        )
    )
    if curriculum is not None and given:
        why = f"a curriculum sets its own batch size and order; got {', '.join(given)}"
        raise UserError("these options cannot be combined with a curriculum", why=why)
    order, content, targets = make_options(LOADER_OPTIONS, options)
    is_cut = curriculum is not None and bool(curriculum.row_lengths)
    if is_cut and content.fill_in_middle is not None:
        raise UserError("cannot fill in the middle of these rows", why=CUTS_ROWS)
    found = plan if isinstance(plan, Plan) else open_plan(dataset, plan or only_plan(dataset))
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
    if schedule.num_steps == 0:
        raise UserError(
            "not enough rows for one global batch",
            where=str(found.folder),
            why=f"it needs {' or '.join(map(str, schedule.row_counts))} rows of one length, and "
            f"there are {schedule.rows_left} rows in total",
            hint="use a smaller batch or more epochs",
        )
    return Batches([reader], schedule, size, order.share(), content, order.seed)


def mix_batches(
    sources: Sequence[MixtureSource],
    *,
    when_one_ends: Literal["stop", "go on"] = "stop",
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
    if schedule.batch(0) is None:
        why = f"it needs {schedule.row_counts[0]} rows, and the sources have fewer"
        raise UserError("not enough rows for one global batch", why=why)
    readers = [
        RowReader(source.dataset, source.plan, targets, np.dtype(np.int64)) for source in sources
    ]
    return Batches(readers, schedule, size, order.share(), content, order.seed)


def only_plan(dataset: Dataset) -> str:
    """Return the name of a dataset's only plan.

    Raises:
        UserError: the dataset has no plan, or several.
    """
    names = dataset.plans
    if len(names) != 1:
        raise UserError(
            "the dataset has several plans" if names else "the dataset has no plan",
            where=dataset.location,
            why=f"they are {', '.join(names)}" if names else "batches are built from a plan",
            hint=f"choose one, for example plan={names[0]!r}"
            if names
            else f"create one: tokenmill pack {dataset.location} --sequence-length 4096",
        )
    return names[0]


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

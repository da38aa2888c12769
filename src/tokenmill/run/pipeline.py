"""The main path of every run: builds, counts and measurements.

resolve   load the tokenizer and list the inputs; nothing is downloaded or written
find      an output that is complete is not made again; one of other inputs is refused
prepare   download inputs, check their fields, cut them into units, sample documents
lock      find the place to write to, and keep others away
agree     store what decides the output, or compare it with what an earlier attempt stored
read      units with a valid receipt are done
run       encode, count or measure the other units
finish    check that the counts balance, and complete the output
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.options import Overwrite
from tokenmill.core.records import Advance
from tokenmill.read.source import Access, Source
from tokenmill.read.units import decompressed_bytes
from tokenmill.run.agreement import agree_on_start
from tokenmill.run.executor import Executor
from tokenmill.run.inputs import access_of
from tokenmill.run.machine import choose_resources
from tokenmill.run.pool import WorkerPool
from tokenmill.run.recipe.options import CountRecipe, Recipe, ResourceOptions
from tokenmill.run.room import How, found_before, locked, room_for
from tokenmill.run.running import Running
from tokenmill.run.shares import Share
from tokenmill.run.task import AnyRecipe, Departure, RunEvents, Task
from tokenmill.run.tasks.encode import BuildReport, EncodeTask
from tokenmill.run.workspace import (
    DATASET_OUTPUT,
    OutputKind,
    open_workspace,
)
from tokenmill.store.objects.opening import refuse_unsafe

if TYPE_CHECKING:
    from tokenmill.encode.measure.tallies import Tally
    from tokenmill.run.tasks.count import CountReport, CountTask
    from tokenmill.run.tasks.measure import MeasuredTokenizer, Measuring

R = TypeVar("R")

BuildEvents = RunEvents[EncodeTask]
"""Callbacks of a build. All are optional."""
CountEvents = RunEvents["CountTask"]
"""Callbacks of a count. All are optional."""

Resolve = Callable[[Access, Executor], Task[R]]
"""Resolves a task. Local workers of the executor start in the meantime."""


def build(
    recipe: Recipe,
    *,
    tokenizer: object = None,
    overwrite: Overwrite = False,
    events: BuildEvents | None = None,
    executor: Executor | None = None,
    share: Share | None = None,
) -> BuildReport | Departure:
    """Build a dataset, or resume a build: units with a receipt are not run again.

    Args:
        recipe: all options of the build.
        tokenizer: a tokenizer object to use instead of the tokenizer that the recipe names.
        overwrite: replace a dataset or an unfinished build in the output folder. A dataset stays
            until the new one is complete, and an interrupted replacement resumes; "first" removes
            it at the start, and begins anew.
        events: callbacks.
        executor: where units run. By default, in processes on this machine.
        share: makes this process one of several agents.

    Returns:
        What was built. An agent gets a `Departure` if other agents hold all remaining work.

    Raises:
        TokenmillError: see `tokenmill.core.errors`. The same call resumes the build.
    """
    events = events or BuildEvents()

    def resolve(access: Access, executor: Executor) -> EncodeTask:
        return EncodeTask.resolve(recipe, tokenizer, access, executor)

    how = _How(overwrite, events, executor, share)
    report = _run(resolve, recipe, DATASET_OUTPUT, how)
    if recipe.pack.sequence_length is None or isinstance(report, Departure):
        return report
    if share is None or report.snapshot is not None:  # only the agent that published packs
        from tokenmill.pack.planning import pack_subsets
        from tokenmill.store.temporary import dataset_at

        with dataset_at(report.out) as dataset:
            plans = pack_subsets(dataset, recipe.pack, events.on_pack)
            report = replace(report, plans=tuple(plans))
    return report


def begin(recipe: Recipe) -> str:
    """Store the start of a build, and leave the work to agents.

    Returns:
        The name of the job, or "" if the dataset is already complete. Agents find the name in the
        output and compare it with the environment variable TOKENMILL_JOB.

    Raises:
        TokenmillError: the build would be refused.
    """
    events = BuildEvents()
    access = access_of(recipe.read, recipe.resources, events.on_download)
    task = EncodeTask.resolve(recipe, None, access)
    with open_workspace(recipe.out) as workspace, locked(workspace, "either") as alone:
        if workspace.is_complete():
            task.found(workspace, events.on_compare)
            return ""
        if alone:
            workspace.make_room(overwrite=False)
        return agree_on_start(workspace, task, events.on_compare)


def count(
    recipe: CountRecipe,
    *,
    sources: Sequence[Source] | None = None,
    overwrite: Overwrite = False,
    events: CountEvents | None = None,
    executor: Executor | None = None,
) -> CountReport:
    """Count the words of a corpus, or resume a count: units with a receipt are not run again.

    Args:
        recipe: all options of the count.
        sources: the files that the recipe's inputs name, if the caller has already listed them.
        overwrite: replace what the output folder holds, as for a build.
        events: callbacks.
        executor: where units run. By default, in processes on this machine.

    Raises:
        TokenmillError: see `tokenmill.core.errors`. The same call resumes the count.
    """
    from tokenmill.run.tasks.count import COUNTS_OUTPUT, CountReport, CountTask  # loads a compiler

    def resolve(access: Access, executor: Executor) -> CountTask:
        return CountTask.resolve(recipe, sources, access, executor)

    how = _How(overwrite, events or CountEvents(), executor)
    report = _run(resolve, recipe, COUNTS_OUTPUT, how)
    assert isinstance(report, CountReport)
    return report


def measure(
    tokenizer: MeasuredTokenizer,
    asked: Measuring,
    options: ResourceOptions | None = None,
    advance: Advance = lambda stage, done, total: None,
) -> Tally:
    """Measure how a tokenizer encodes all documents. The number of workers changes nothing.

    Raises:
        DataError: an input is damaged.
        EngineError: a text cannot be encoded, or no engine matches the reference.
        TokenmillError: see `tokenmill.core.errors`.
    """
    from tokenmill.run.tasks.measure import SMALL_BYTES, MeasureRecipe, MeasureTask

    small = sum(map(decompressed_bytes, asked.sources)) <= SMALL_BYTES
    resources = options or ResourceOptions(workers=1 if small else None)
    if small and resources.workers is None:
        resources = msgspec.structs.replace(resources, workers=1)
    events = RunEvents[MeasureTask](
        on_progress=lambda shot: advance("documents", shot.done_bytes, shot.total_bytes)
    )
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        recipe = MeasureRecipe(out=folder, resources=resources)

        def resolve(_: Access, executor: Executor) -> MeasureTask:
            return MeasureTask.resolve(recipe, tokenizer, asked, executor)

        tally = _run(resolve, recipe, DATASET_OUTPUT, _How(False, events))
        assert not isinstance(tally, Departure)
        return tally


@dataclass(frozen=True, slots=True)
class _How:
    """How a run is carried out, which changes nothing in its output."""

    overwrite: Overwrite
    events: RunEvents[Any]
    executor: Executor | None = None
    share: Share | None = None


def _run(resolve: Resolve[R], recipe: AnyRecipe, output: OutputKind, how: _How) -> R | Departure:
    """Go the way from options to the result; see the top of this module."""
    events, overwrite = how.events, how.overwrite
    with contextlib.ExitStack() as stack:
        executor = how.executor
        if executor is None:
            executor = stack.enter_context(WorkerPool(choose_resources(recipe.resources)))
        scratch = recipe.resources.scratch
        workspace = stack.enter_context(open_workspace(recipe.out, output, scratch=scratch))
        if overwrite and workspace.bucket is not None:
            raise UserError(
                "--overwrite works for folders only",
                where=workspace.location,
                why="agents on other machines may be writing to the bucket, and it has no lock",
                hint="choose another prefix, or remove what is there with tokenmill delete",
            )
        access = access_of(recipe.read, recipe.resources, events.on_download)
        task = resolve(access, executor)
        lock: How = "together" if how.share else "either" if task.takes_agents else "alone"
        lock = "alone" if overwrite else lock
        if not overwrite and (found := found_before(workspace, task, lock, events.on_compare)):
            return found
        in_process = task.resources.num_workers == 1 and isinstance(executor, WorkerPool)
        task = task.prepared(access, in_process=in_process)
        place, alone = stack.enter_context(room_for(task, workspace, overwrite, lock))
        if not alone:
            refuse_unsafe(place.store)
        if place.is_complete():  # by another process, or by one that was killed just afterwards
            place.take_name()
            return task.found(workspace, events.on_compare)
        events.on_prepared(task)
        return Running(place, task, events, executor, how.share, alone).run()

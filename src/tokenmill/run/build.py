"""The main path: turn a corpus into a verified token dataset."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import overload

import msgspec

from tokenmill.core.errors import StorageError, UserError
from tokenmill.encode.engine import Encoder
from tokenmill.encode.exactness import Exam, examine
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.kinds import KINDS
from tokenmill.run.agents.claims import Claims
from tokenmill.run.agents.presence import Presence, present
from tokenmill.run.agents.shard import Shard
from tokenmill.run.build_report import BuildReport, Departure
from tokenmill.run.commit.identity import versions
from tokenmill.run.commit.ledger import Ledger
from tokenmill.run.commit.lock import How, locked
from tokenmill.run.commit.publish import (
    Description,
    describe,
    describe_sources,
    publish,
    store_tokenizer,
    stored_manifest,
    sweep,
)
from tokenmill.run.commit.workspace import Overwrite, Workspace, open_workspace
from tokenmill.run.events import RunEvents
from tokenmill.run.executor import Executor
from tokenmill.run.job import CheckedTask, Job, attempt_with, board_for
from tokenmill.run.local.processes import LocalProcesses
from tokenmill.run.machine.resources import choose_resources
from tokenmill.run.progress import ProgressBoard
from tokenmill.run.recipe.options import LimitOptions, Recipe
from tokenmill.run.start.agreement import Start, agree_on_finished, agree_on_start, found_before
from tokenmill.run.start.inputs import access_of
from tokenmill.run.start.preparation import (
    Preparation,
    identity_of,
    prepare,
    resolve,
    start_of,
)
from tokenmill.run.start.room import room_for
from tokenmill.run.units.assignment import Limit
from tokenmill.run.units.tasks import EncodeTask
from tokenmill.store.dataset import Dataset
from tokenmill.store.layout import token_dtype
from tokenmill.store.manifest import Manifest, Run, TokenizerEntry
from tokenmill.store.objects.opening import refuse_unsafe
from tokenmill.store.policies import Policies

BuildEvents = RunEvents[Preparation]
"""Callbacks of a build. All are optional."""


@overload
def build(
    recipe: Recipe,
    *,
    tokenizer: object = ...,
    overwrite: Overwrite = ...,
    events: BuildEvents | None = ...,
    executor: Executor | None = ...,
    shard: None = ...,
) -> BuildReport: ...


@overload
def build(
    recipe: Recipe,
    *,
    tokenizer: object = ...,
    overwrite: Overwrite = ...,
    events: BuildEvents | None = ...,
    executor: Executor | None = ...,
    shard: Shard | None,
) -> BuildReport | Departure: ...


def build(
    recipe: Recipe,
    *,
    tokenizer: object = None,
    overwrite: Overwrite = False,
    events: BuildEvents | None = None,
    executor: Executor | None = None,
    shard: Shard | None = None,
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
        shard: makes this process one of several agents.

    Returns:
        What was built. An agent gets a `Departure` if other agents hold all remaining work.

    Raises:
        TokenmillError: see `tokenmill.core.errors`. The same call resumes the build.
    """
    events = events or BuildEvents()
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(LocalProcesses(choose_resources(recipe.resources)))
        workspace = stack.enter_context(
            open_workspace(recipe.out, scratch=recipe.resources.scratch)
        )
        report = _build_dataset(workspace, recipe, tokenizer, overwrite, events, executor, shard)
    if recipe.pack.sequence_length is None or isinstance(report, Departure):
        return report
    if shard is None or report.snapshot is not None:  # only the agent that published packs
        from tokenmill.pack.planning import (
            pack_subsets,  # loads a compiler that encoding does not need
        )
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
    resolution = resolve(recipe, None, access_of(recipe.read, recipe.resources, lambda _: None))
    start = start_of(resolution, lambda _: None)
    with (
        open_workspace(recipe.out) as workspace,
        locked(workspace, "either") as alone,
    ):
        if workspace.is_complete():
            _already_complete(workspace, start)
            return ""
        if alone:
            workspace.make_room(overwrite=False)
        return agree_on_start(workspace, start)


def _build_dataset(
    workspace: Workspace,
    recipe: Recipe,
    tokenizer: object,
    overwrite: Overwrite,
    events: BuildEvents,
    executor: Executor,
    shard: Shard | None,
) -> BuildReport | Departure:
    """Read the recipe and build; the stages get only the options that they need."""
    if overwrite and workspace.bucket is not None:
        raise UserError(
            "--overwrite works for folders only",
            where=workspace.location,
            why="agents on other machines may be writing to the bucket, and it has no lock",
            hint="choose another prefix, or remove what is there with tokenmill delete",
        )
    access = access_of(recipe.read, recipe.resources, events.on_download)
    resolution = resolve(recipe, tokenizer, access, executor)

    def start() -> Start:
        return start_of(resolution, events.on_compare)

    def complete(start: Start) -> BuildReport:
        return _already_complete(workspace, start)

    how: How = "alone" if overwrite else "together" if shard else "either"
    if not overwrite and (finished := found_before(workspace, start, complete, how)):
        return finished
    resources = choose_resources(recipe.resources)
    in_process = resources.num_workers == 1 and isinstance(executor, LocalProcesses)
    prepared = prepare(resolution, access, resources, in_process=in_process)
    with room_for(start, workspace, overwrite, how) as (place, alone):
        if not alone:
            refuse_unsafe(place.store)
        if place.is_complete():  # by another process, or by one that was killed just afterwards
            place.take_name()
            return complete(start())
        events.on_prepared(prepared)
        total = Limit(documents=recipe.read.max_documents, tokens=recipe.read.max_tokens)
        build = _Build(place, prepared, recipe.limits, total, events, executor, shard, alone)
        return build.run(recipe)


def _already_complete(workspace: Workspace, start: Start) -> BuildReport:
    dataset = Dataset(workspace.folder) if workspace.bucket is None else None
    manifest = dataset.manifest if dataset else stored_manifest(workspace.store)
    read = msgspec.convert(manifest.policies, Policies).read
    limited = read.max_documents is not None or read.max_tokens is not None
    run, remarks = agree_on_finished(workspace, start, manifest.sources, limited=limited)
    sweep(workspace, (file.name for file in manifest.files))
    return BuildReport(workspace.location, manifest, run, None, dataset, remarks=tuple(remarks))


@dataclass(slots=True)
class _Build:
    """One attempt at a build."""

    workspace: Workspace
    prepared: Preparation
    limits: LimitOptions
    total: Limit
    events: BuildEvents
    executor: Executor
    shard: Shard | None
    alone: bool
    """Whether no other agent can be working on this build."""
    started: float = field(default_factory=time.monotonic)
    ledger: Ledger = field(init=False)
    board: ProgressBoard = field(init=False)

    def run(self, recipe: Recipe) -> BuildReport | Departure:
        """Run all stages in order; `recipe` is only recorded."""
        prepared, store = self.prepared, self.workspace.store
        self.workspace.create(alone=self.alone)
        start = start_of(prepared, self.events.on_compare)
        agree_on_start(self.workspace, start)
        if self.workspace.is_complete():  # other agents have finished it meanwhile
            return _already_complete(self.workspace, start)
        self.ledger = Ledger(store, prepared.items, self.total, start.versions_for)
        if self.alone:
            self.ledger.read_all()
        reused = self.ledger.reused(prepared.resources.num_workers)
        store_tokenizer(self.workspace, prepared.file)
        self.board = self._board()
        with ThreadPoolExecutor(1, "calibration") as background:
            exam = background.submit(examine, prepared.reference, prepared.sample)
            fingerprint = background.submit(fingerprint_of, prepared.file)
            encoded = self._encode(exam)
        if encoded is None or self.workspace.is_complete():
            return _already_complete(self.workspace, start)
        if not self.ledger.is_complete():
            return Departure(store.location, self.board.snapshot(), reused)
        manifest = self._describe(fingerprint.result().value)
        run = publish(store, self._record(recipe, exam.result(), *encoded), manifest)
        finished = self.workspace.take_name()
        sweep(finished, (file.name for file in manifest.files))
        self.board.refresh(force=True)
        dataset = Dataset(finished.folder) if finished.bucket is None else None
        return BuildReport(
            finished.location, manifest, run, self.board.snapshot(), dataset, reused=reused
        )

    def _encode(self, exam: Future[Exam]) -> tuple[Job, str] | None:
        """Run the units that this agent claims, and return the job and its engine.

        Returns None if other agents took this agent for dead, published the dataset, and removed
        its working files.
        """
        try:
            with self._presence() as presence:
                job = self._job(exam, presence.claims)
                return job, job.run(self.prepared.candidates.names, self.events.on_engine)
        except StorageError:
            if not self.workspace.is_complete():
                raise
        return None

    def _record(self, recipe: Recipe, exam: Exam, job: Job, engine: str) -> Run:
        """Return the record of how the dataset was built."""
        identity, wall = identity_of(self.prepared), time.monotonic() - self.started
        run = job.record(recipe, identity, engine, len(exam.texts), wall)
        commit = self.prepared.file.commit or msgspec.UNSET
        return msgspec.structs.replace(run, tokenizer_commit=commit)

    def _board(self) -> ProgressBoard:
        """Return the progress board, which informs the user and other agents."""
        prepared = self.prepared
        token_bytes = token_dtype(prepared.reference.largest_id).itemsize
        return board_for(
            self.ledger, prepared.num_bytes, token_bytes, self.events.on_progress, self.executor
        )

    @contextlib.contextmanager
    def _presence(self) -> Iterator[Presence]:
        """Register as one of the agents while the block runs."""
        attempt = attempt_with(self.prepared.resources, self.limits)
        items = [item.key for item in self.prepared.items]
        with present(
            self.workspace.store, items, attempt, versions(), shard=self.shard, alone=self.alone
        ) as presence:
            done = {item.key for item in self.prepared.items if self.ledger.is_finished(item)}
            presence.claims.refresh(done)
            self.board.listeners.append(lambda shot: presence.tell(shot, self.board.num_recycled))
            yield presence

    def _job(self, exam: Future[Exam], claims: Claims) -> Job:
        """Return the job that encodes everything without a receipt."""
        prepared, reference = self.prepared, self.prepared.reference
        encoder = Encoder(reference, reference.largest_id)
        twin = reference.twin if KINDS[prepared.file.kind].is_described else None
        return Job(
            workspace=self.workspace,
            sources=prepared.sources,
            fields=prepared.fields,
            resources=prepared.resources,
            limits=self.limits,
            executor=self.executor,
            ledger=self.ledger,
            board=self.board,
            checked=CheckedTask(self._task(), prepared.file, exam, encoder, twin),
            claims=claims,
        )

    def _task(self) -> EncodeTask:
        prepared, reference = self.prepared, self.prepared.reference
        return EncodeTask(
            policies=prepared.policies.encode,
            validation=prepared.policies.read.validation,
            tokenizer_dir=str((self.workspace.folder / "tokenizer").resolve()),
            tokenizer_kind=prepared.file.kind,
            tokenizer_source=prepared.tokenizer_source,
            encoding=prepared.file.encoding,
            largest_id=reference.largest_id,
            prefix=list(prepared.boundary.prefix),
            eos_id=prepared.boundary.eos_id,
            unk_id=reference.unk_id,
            special_tokens=list(reference.special_tokens),
            control_tokens=prepared.policies.control_tokens,
            is_chat=bool(prepared.policies.chat),
            added_eos_has_loss=not prepared.policies.has_template,
        )

    def _describe(self, fingerprint: str) -> Manifest:
        prepared, reference, boundary = (
            self.prepared,
            self.prepared.reference,
            self.prepared.boundary,
        )
        receipts, quarantined = self.ledger.final_receipts(), self.ledger.quarantined
        description = Description(
            sources=describe_sources(prepared.sources, receipts, quarantined),
            tokenizer=TokenizerEntry(
                kind=prepared.file.kind,
                encoding=prepared.file.encoding,
                sha256=prepared.file.sha256,
                fingerprint=fingerprint,
                reference=reference.name,
                largest_id=reference.largest_id,
                prefix_ids=list(boundary.prefix),
                eos_id=boundary.eos_id,
                pad_id=boundary.pad_id,
                files=store_tokenizer(self.workspace, prepared.file),
            ),
            policies=prepared.policies,
        )
        return describe(self.workspace.store, description, receipts, self.limits.max_bad)

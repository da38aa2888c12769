"""The main path: a corpus in, a verified token dataset out."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from tokenmill.encode.encoder import Encoder
from tokenmill.encode.exactness import Exam, examine
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.kinds import KINDS
from tokenmill.run.commit.identity import BuildState
from tokenmill.run.commit.ledger import Ledger, Reused
from tokenmill.run.commit.publish import (
    Description,
    describe_sources,
    number_and_describe,
    recall_shards,
    store_tokenizer,
    sweep,
)
from tokenmill.run.commit.workspace import Workspace, locked, open_workspace
from tokenmill.run.events import RunEvents
from tokenmill.run.executor import Executor
from tokenmill.run.job import Job, Work, attempt_with, board_for
from tokenmill.run.local.processes import LocalProcesses
from tokenmill.run.machine.resources import choose_resources
from tokenmill.run.progress import ProgressBoard, Snapshot
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
from tokenmill.run.units.assignment import Limit
from tokenmill.run.units.tasks import EncodeTask
from tokenmill.store.canonical import write_sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.layout import token_dtype
from tokenmill.store.manifest import (
    RUN_NAME,
    Manifest,
    Run,
    TokenizerEntry,
    write_manifest,
)

if TYPE_CHECKING:
    from tokenmill.planning.packing import PlanReport


BuildEvents = RunEvents[Preparation]
"""What a caller may want to hear of a build; everything is optional."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did."""

    dataset: Dataset
    run: Run
    snapshot: Snapshot | None
    """None where the dataset was already complete."""
    reused: Reused | None = None
    """What earlier attempts at a build had done."""
    remarks: tuple[str, ...] = ()
    """Libraries that a complete dataset was built with, if other versions are installed now."""
    plans: tuple[PlanReport, ...] = ()
    """Plans that the recipe asks for, one a subset."""


def build(
    recipe: Recipe,
    *,
    tokenizer: object = None,
    overwrite: bool = False,
    events: BuildEvents | None = None,
    executor: Executor | None = None,
) -> BuildReport:
    """Build a dataset, or resume one: units that have a receipt are not run again.

    `tokenizer` is an object to encode with, which the recipe can only name. Units run on
    `executor`, else in processes of this machine.

    Raises:
        TokenmillError: see `tokenmill.errors`; running the same call again resumes.
    """
    events = events or BuildEvents()
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(LocalProcesses(choose_resources(recipe.resources)))
        report = _build_dataset(recipe, tokenizer, overwrite, events, executor)
    if recipe.pack.sequence_length is not None:
        from tokenmill.planning.packing import (
            pack_subsets,  # loads a compiler, which encoding does without
        )

        report = replace(report, plans=tuple(pack_subsets(report.dataset, recipe.pack)))
    return report


def _build_dataset(
    recipe: Recipe, tokenizer: object, overwrite: bool, events: BuildEvents, executor: Executor
) -> BuildReport:
    """The recipe becomes the parts that each stage needs; below this, nobody sees it."""
    workspace = open_workspace(recipe.out)
    access = access_of(recipe.read, recipe.resources, events.on_download)
    resolution = resolve(recipe, tokenizer, access)

    def start() -> Start[BuildState]:
        return start_of(resolution, events.on_compare)

    def complete(start: Start[BuildState]) -> BuildReport:
        return _already_complete(workspace, start)

    if not overwrite and (finished := found_before(workspace, start, complete)):
        return finished
    resources = choose_resources(recipe.resources)
    in_process = resources.num_workers == 1 and isinstance(executor, LocalProcesses)
    prepared = prepare(resolution, access, resources, in_process=in_process)
    with locked(workspace):
        workspace.make_room(overwrite=overwrite)
        if workspace.is_complete:  # by another process, in the meantime
            return complete(start())
        events.on_prepared(prepared)
        total = Limit(documents=recipe.read.max_documents, tokens=recipe.read.max_tokens)
        build = _Build(workspace, prepared, recipe.limits, total, events, executor)
        return build.run(recipe)


def _already_complete(workspace: Workspace, start: Start[BuildState]) -> BuildReport:
    dataset = Dataset(workspace.out)
    read = dataset.policies.read
    limited = read.max_documents is not None or read.max_tokens is not None
    run, remarks = agree_on_finished(workspace, start, dataset.manifest.sources, limited=limited)
    sweep(workspace)
    return BuildReport(dataset, run, None, remarks=tuple(remarks))


@dataclass(slots=True)
class _Build:
    """One attempt at a build."""

    workspace: Workspace
    prepared: Preparation
    limits: LimitOptions
    total: Limit
    events: BuildEvents
    executor: Executor
    started: float = field(default_factory=time.monotonic)
    ledger: Ledger = field(init=False)
    board: ProgressBoard = field(init=False)

    def run(self, recipe: Recipe) -> BuildReport:
        """Every stage by its name, and nothing else; `recipe` is recorded as it is."""
        prepared, resources = self.prepared, self.prepared.resources
        self.workspace.create()
        recall_shards(self.workspace)
        state = agree_on_start(self.workspace, start_of(prepared, self.events.on_compare))
        self.ledger = Ledger(self.workspace, state, prepared.items, self.total)
        reused = self.ledger.begin(attempt_with(resources, self.limits))
        store_tokenizer(self.workspace.out / "tokenizer", prepared.file)
        token_bytes = token_dtype(prepared.reference.largest_id).itemsize
        self.board = board_for(
            self.ledger, prepared.num_bytes, token_bytes, self.events.on_progress, self.executor
        )
        with ThreadPoolExecutor(1, "calibration") as background:
            exam = background.submit(examine, prepared.reference, prepared.sample)
            fingerprint = background.submit(fingerprint_of, prepared.file)
            job = self._job(exam)
            engine = job.run(prepared.candidates.names, self.events.on_engine)
        manifest = self._number_shards(fingerprint.result().value)
        identity, wall = identity_of(prepared), time.monotonic() - self.started
        run = job.record(recipe, identity, engine, len(exam.result().texts), wall)
        run = msgspec.structs.replace(run, tokenizer_commit=prepared.file.commit or msgspec.UNSET)
        write_sealed(self.workspace.out / RUN_NAME, run)
        write_manifest(self.workspace.out, manifest)
        sweep(self.workspace)
        self.board.refresh(force=True)
        return BuildReport(Dataset(self.workspace.out), run, self.board.snapshot(), reused)

    def _job(self, exam: Future[Exam]) -> Job:
        """Encode everything that has no receipt."""
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
            work=Work(self._task(), prepared.file, exam, encoder, twin),
        )

    def _task(self) -> EncodeTask:
        prepared, reference = self.prepared, self.prepared.reference
        return EncodeTask(
            policies=prepared.policies.encode,
            validation=prepared.policies.read.validation,
            tokenizer_dir=str((self.workspace.out / "tokenizer").resolve()),
            tokenizer_kind=prepared.file.kind,
            tokenizer_source=prepared.tokenizer_source,
            encoding=prepared.file.encoding,
            largest_id=reference.largest_id,
            prefix=list(prepared.boundary.prefix),
            eos_id=prepared.boundary.eos_id,
            unk_id=reference.unk_id,
            special_tokens=list(reference.special_tokens),
        )

    def _number_shards(self, fingerprint: str) -> Manifest:
        prepared, reference, boundary = (
            self.prepared,
            self.prepared.reference,
            self.prepared.boundary,
        )
        receipts, quarantined = self.ledger.final_receipts(), self.ledger.state.quarantined
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
                files=store_tokenizer(self.workspace.out / "tokenizer", prepared.file),
            ),
            policies=prepared.policies,
        )
        return number_and_describe(self.workspace, description, receipts, self.limits.max_bad)

"""The main path: a corpus in, a verified token dataset out."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokenmill.encode.exactness import CalibrationVetoError, Exam, examine, with_first_exact
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.steps import unknown_step
from tokenmill.errors import DataError, TokenmillError
from tokenmill.paths import local_path, refuse_non_utf8
from tokenmill.read.places.access import FetchListener
from tokenmill.read.sources import Source
from tokenmill.read.units import Stream, Unit, choose_unit_bytes, unit_key
from tokenmill.run.commit.limits import crossing, receipts_in_order
from tokenmill.run.commit.publish import number_and_describe, recall_shards, store_tokenizer, sweep
from tokenmill.run.commit.receipts import Receipt, read_receipts, read_stream_ends
from tokenmill.run.commit.workspace import (
    Workspace,
    check_output,
    locked,
)
from tokenmill.run.local.crew import run_all
from tokenmill.run.local.fleet import Fleet
from tokenmill.run.machine.resources import choose_resources
from tokenmill.run.progress import Listener, ProgressBoard, Snapshot
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.session import Session
from tokenmill.run.start.agreement import Start, agree_on_dataset, agree_on_start, store_state
from tokenmill.run.start.contents import Contents
from tokenmill.run.start.identity import BuildState, versions
from tokenmill.run.start.preparation import (
    Preparation,
    Resolution,
    access_of,
    identity_of,
    prepare,
    resolve,
)
from tokenmill.run.units.assignment import Limit, Setup
from tokenmill.run.work import Inputs, WorkQueue
from tokenmill.store.canonical import write_sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import RUN_NAME, Attempt, Run, write_manifest

if TYPE_CHECKING:
    from tokenmill.planning.packing import PlanReport


@dataclass(slots=True)
class BuildEvents:
    """What a caller may want to hear of a build; everything is optional."""

    on_prepared: Callable[[Preparation], None] = lambda prepared: None
    on_engine: Callable[[str, str], None] = lambda engine, remark: None
    on_progress: Listener = lambda snapshot: None
    on_download: FetchListener = lambda progress: None
    on_compare: Callable[[Source], None] = lambda source: None
    """The time of an input has changed, and its content is about to be compared."""


@dataclass(frozen=True, slots=True)
class Reused:
    """Units that a resumed build did not run again."""

    units: int
    bytes: int
    """Record bytes, decompressed."""
    seconds: float
    """What they took their workers, divided by the workers of this attempt."""


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
) -> BuildReport:
    """Build a dataset, or resume one: units that have a receipt are not run again.

    `tokenizer` is an object to encode with, which the recipe can only name.

    Raises:
        TokenmillError: see `tokenmill.errors`; running the same call again resumes.
    """
    events = events or BuildEvents()
    report = _build_dataset(recipe, tokenizer, overwrite, events)
    if recipe.pack.sequence_length is not None:
        from tokenmill.planning.packing import (
            pack_subsets,  # loads a compiler, which encoding does without
        )

        report = replace(report, plans=tuple(pack_subsets(report.dataset, recipe.pack)))
    return report


def _build_dataset(
    recipe: Recipe, tokenizer: object, overwrite: bool, events: BuildEvents
) -> BuildReport:
    out = local_path(recipe.out, "the output folder")
    refuse_non_utf8(Path(os.path.realpath(out)), "the output folder")
    workspace = Workspace(out)
    check_output(out)
    access = access_of(recipe, events.on_download)
    with Fleet(choose_resources(recipe.resources)) as fleet:
        resolution = resolve(recipe, tokenizer, access)
        if not overwrite and (finished := _found_before(workspace, resolution, events)):
            return finished
        prepared = prepare(resolution, access)
        with locked(workspace):
            if overwrite:
                workspace.remove_dataset()
            if workspace.is_complete:  # by another process, in the meantime
                return _already_complete(workspace, _start(resolution, events))
            if not workspace.state.is_file():
                workspace.remove_dataset()  # what an interrupted --overwrite has left
            events.on_prepared(prepared)
            return _Build(workspace, prepared, events, fleet).run()


def _found_before(
    workspace: Workspace, resolution: Resolution, events: BuildEvents
) -> BuildReport | None:
    """The dataset, where it is complete; what was begun otherwise is refused before a download."""
    if workspace.is_complete or workspace.state.is_file():
        with locked(workspace):
            start = _start(resolution, events)
            if workspace.is_complete:
                return _already_complete(workspace, start)
            agree_on_start(workspace, start)
    return None


def _start(resolution: Resolution, events: BuildEvents) -> Start:
    sources, recipe, kind = resolution.sources, resolution.recipe, resolution.file.kind
    unit_bytes = choose_unit_bytes(sources, slow=kind == "python")
    contents = Contents(sources, recipe.read.fields, unit_bytes, events.on_compare)
    return Start(identity_of(resolution), recipe.inputs, kind, contents)


def _already_complete(workspace: Workspace, start: Start) -> BuildReport:
    run, remarks = agree_on_dataset(workspace, start)
    sweep(workspace)
    return BuildReport(Dataset(workspace.out), run, None, remarks=tuple(remarks))


@dataclass(slots=True)
class _Build:
    """One attempt at a build."""

    workspace: Workspace
    prepared: Preparation
    events: BuildEvents
    fleet: Fleet
    started: float = field(default_factory=time.monotonic)
    state: BuildState = field(init=False)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    reused: Reused | None = None
    num_calibrated: int = 0

    def run(self) -> BuildReport:
        """Every stage by its name, and nothing else."""
        self.workspace.create()
        recall_shards(self.workspace)
        self.state = agree_on_start(self.workspace, _start(self.prepared, self.events))
        self._record_attempt()
        self.receipts = read_receipts(self.workspace.receipts, self.workspace.shards)
        self.reused = self._reused()
        store_tokenizer(self.workspace.out / "tokenizer", self.prepared.file)
        board = self._board()
        with ThreadPoolExecutor(1, "calibration") as background:
            exam = background.submit(self._exam)
            fingerprint = background.submit(fingerprint_of, self.prepared.file)
            engine = self._encode_with_best_engine(board, exam)
        self._apply_limit(board, engine, exam)
        receipts = self._final_receipts()
        return self._publish(receipts, board, engine, fingerprint.result().value)

    def _record_attempt(self) -> None:
        """Remember when this attempt began, and the options that attempts may differ in."""
        limits, resources = self.prepared.recipe.limits, self.prepared.resources
        attempt = Attempt(
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            workers=resources.num_workers,
            memory_bytes=resources.memory_bytes,
            recycled_workers=0,
            max_bad=limits.max_bad,
            on_bad_file=limits.on_bad_file,
        )
        self.state.attempts.append(attempt)
        store_state(self.workspace, self.state)

    def _reused(self) -> Reused | None:
        """What the receipts of earlier attempts spare this one."""
        receipts = self.receipts.values()
        if not receipts:
            return None
        seconds = sum(receipt.seconds or 0.0 for receipt in receipts)
        return Reused(
            units=len(receipts),
            bytes=sum(c.record_bytes for receipt in receipts for c in receipt.counts.values()),
            seconds=seconds / self.prepared.resources.num_workers,
        )

    def _board(self) -> ProgressBoard:
        item_bytes = 2 if self.prepared.dtype_name == "uint16" else 4
        board = ProgressBoard(self.prepared.num_bytes, item_bytes, self.events.on_progress)
        units = {item.key: item for item in self.prepared.items if isinstance(item, Unit)}
        board.resume(self.receipts, units)
        return board

    def _exam(self) -> Exam:
        exam = examine(self.prepared.reference, self.prepared.sample)
        self.num_calibrated = len(exam.texts)
        return exam

    def _encode_with_best_engine(self, board: ProgressBoard, exam: Future[Exam]) -> str:
        """Encode everything; where calibration vetoes an engine, the next one takes over."""
        names = self.prepared.candidates.names
        if chosen := self.state.calibrated_engine:
            names = (chosen,)

        def encode_all(name: str) -> str:
            self.events.on_engine(name, "")
            self._encode_all(board, name, exam)
            return name

        def tell(name: str, veto: CalibrationVetoError) -> None:
            self.events.on_engine(name, f"vetoed: {veto.why}")

        return with_first_exact(names, encode_all, tell)

    def _encode_all(self, board: ProgressBoard, engine: str, exam: Future[Exam]) -> None:
        """Run all units that have no receipt; damaged files are quarantined, or fail at the end."""
        while self._crossing() is None:  # else everything up to the limit has its receipt
            session = self._session(board, engine, exam, Limit())
            wanted = lambda key: key not in self.receipts  # noqa: E731
            run_all(session, self._tasks(wanted), self.fleet)
            self._count_recycled(session)
            if not session.damaged or self._crossing() is not None:
                return  # damage behind the limit is not part of the dataset
            if self.prepared.recipe.limits.on_bad_file == "fail":
                raise _damaged_files(list(session.damaged.values()))
            for source, error in session.damaged.items():
                self.state.quarantined[source] = f"{error.what}: {error.why}"
            store_state(self.workspace, self.state)

    def _count_recycled(self, session: Session) -> None:
        """Workers replaced for their memory, beside the options of this attempt."""
        attempt = self.state.attempts[-1]
        attempt.recycled_workers = (attempt.recycled_workers or 0) + session.recycled_workers
        store_state(self.workspace, self.state)

    def _session(
        self, board: ProgressBoard, engine: str, exam: Future[Exam], limit: Limit
    ) -> Session:
        return Session(
            workspace=self.workspace,
            setup=self._setup(engine),
            reference=self.prepared.reference,
            exam=exam,
            board=board,
            receipts=self.receipts,
            calibrated=lambda: self._remember_engine(engine),
            on_receipt=self._stop_at_limit,
            excluded=sorted(self.state.quarantined),
            limit=limit,
            watched=bool(unknown_step(self.prepared.file)),
        )

    def _remember_engine(self, engine: str) -> None:
        if self.state.calibrated_engine != engine:
            self.state.calibrated_engine = engine
            store_state(self.workspace, self.state)

    def _tasks(self, wanted: Callable[[str], bool]) -> WorkQueue:
        prepared = self.prepared
        items = [item for item in prepared.items if not self._is_quarantined(item)]
        ends = read_stream_ends(self.workspace.receipts)
        finished = {
            source
            for source, parts in ends.items()
            if not any(wanted(unit_key(source, part)) for part in range(parts))
        }
        return WorkQueue(
            inputs=Inputs(prepared.sources, prepared.recipe.read.fields, items),
            workspace=self.workspace,
            wanted=wanted,
            skip_streams=frozenset(finished),
            num_feeders=(prepared.resources.num_workers + 1) // 2,
            prefetch=prepared.resources.prefetch,
        )

    def _is_quarantined(self, item: Unit | Stream) -> bool:
        sources = [item.source] if isinstance(item, Stream) else [e.source for e in item.extents]
        return all(source in self.state.quarantined for source in sources)

    def _setup(self, engine: str) -> Setup:
        prepared = self.prepared
        return Setup(
            recipe=prepared.recipe,
            sources=prepared.sources,
            tokenizer_dir=str((self.workspace.out / "tokenizer").resolve()),
            tokenizer_kind=prepared.file.kind,
            tokenizer_source=prepared.tokenizer_source,
            encoding=prepared.file.encoding,
            engine=engine,
            largest_id=prepared.reference.largest_id,
            prefix=list(prepared.boundary.prefix),
            eos_id=prepared.boundary.eos_id,
            unk_id=prepared.reference.unk_id,
            special_tokens=list(prepared.reference.special_tokens),
            batch_bytes=prepared.batch_bytes,
            cache_bytes=prepared.resources.cache_bytes,
            growth_bytes=prepared.resources.growth_bytes,
            attempts_dir=str(self.workspace.attempts.resolve()),
            shards_dir=str(self.workspace.shards.resolve()),
        )

    # Limits: units run in any order, so the cut is found afterwards, in the order of the inputs.

    def _stop_at_limit(self, queue: WorkQueue) -> None:
        if self._crossing() is not None:
            queue.stop()

    def _crossing(self) -> tuple[str, Limit] | None:
        """The unit in which a limit is reached, and what it may still write."""
        read = self.prepared.recipe.read
        if read.max_documents is None and read.max_tokens is None:
            return None
        return crossing(read, self._receipts_in_order())

    def _receipts_in_order(self) -> list[Receipt]:
        """Receipts up to the first unit that has none."""
        items = [item for item in self.prepared.items if not self._is_quarantined(item)]
        ends = read_stream_ends(self.workspace.receipts)
        return receipts_in_order(items, self.receipts, ends)

    def _apply_limit(self, board: ProgressBoard, engine: str, exam: Future[Exam]) -> None:
        """Run the unit in which a limit is reached again, up to the limit."""
        crossed = self._crossing()
        if crossed is None or self.receipts[crossed[0]].limited:
            return
        key, limit = crossed
        session = self._session(board, engine, exam, limit)
        session.on_receipt = lambda queue: queue.stop()
        here = Fleet(replace(self.prepared.resources, num_workers=1))
        run_all(session, self._tasks(lambda wanted: wanted == key), here)

    def _final_receipts(self) -> list[Receipt]:
        receipts = self._receipts_in_order()
        if crossed := self._crossing():
            keys = [receipt.key for receipt in receipts]
            receipts = receipts[: keys.index(crossed[0]) + 1]
        return receipts

    def _publish(
        self, receipts: list[Receipt], board: ProgressBoard, engine: str, fingerprint: str
    ) -> BuildReport:
        manifest = number_and_describe(
            self.workspace, self.prepared, receipts, self.state.quarantined, fingerprint
        )
        run = self._describe_run(receipts, board, engine)
        write_sealed(self.workspace.out / RUN_NAME, run)
        write_manifest(self.workspace.out, manifest)
        sweep(self.workspace)
        board.refresh(force=True)
        return BuildReport(Dataset(self.workspace.out), run, board.snapshot(), self.reused)

    def _describe_run(self, receipts: list[Receipt], board: ProgressBoard, engine: str) -> Run:
        wall = time.monotonic() - self.started
        return Run(
            recipe=msgspec.to_builtins(self.prepared.recipe),
            identity=msgspec.to_builtins(identity_of(self.prepared)),
            inputs=[source.where for source in self.prepared.sources],
            host=socket.gethostname(),
            versions=versions(),
            engine=engine,
            audited_documents=sum(receipt.audited for receipt in receipts),
            calibrated_texts=self.num_calibrated,
            attempts=self.state.attempts,
            seconds={
                name: round(spent, 3) for name, spent in {**board.seconds, "wall": wall}.items()
            },
            peak_bytes=board.peak_bytes,
            tokenizer_commit=self.prepared.file.commit or msgspec.UNSET,
        )


def _damaged_files(errors: list[TokenmillError]) -> TokenmillError:
    if len(errors) == 1:
        return errors[0]
    places = "; ".join(f"{error.where}: {error.why}" for error in errors)
    return DataError(f"{len(errors)} input files are damaged", why=places, hint=errors[0].hint)

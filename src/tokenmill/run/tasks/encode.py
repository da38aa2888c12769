"""Builds: encode a corpus into a dataset."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tokenmill.core.errors import DataError, UserError
from tokenmill.encode.boundary_policy import BoundaryTokens, resolve_boundary_tokens
from tokenmill.encode.engine import Encoder, Engine, Reference
from tokenmill.encode.engine_ranking import REFERENCE, Candidates, rank_engines
from tokenmill.encode.exactness import Exam, answers, examine
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.probe import require_harmless, unknown_step
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.read.source import Access, Source
from tokenmill.read.sources import commits_of, list_sources
from tokenmill.read.units import choose_unit_bytes, count_units, decompressed_bytes
from tokenmill.run.agreement import agree_on_finished
from tokenmill.run.chat import chat_policies, conversations_of
from tokenmill.run.executor import Executor
from tokenmill.run.job import Encode, Job, Limit, TokenizerSpec
from tokenmill.run.journal.ledger import Reused, judge_rejected
from tokenmill.run.machine import choose_resources
from tokenmill.run.pool import WorkerPool
from tokenmill.run.progress import Snapshot
from tokenmill.run.publish import (
    describe,
    describe_sources,
    publish,
    rejected_files,
    store_tokenizer,
    stored_manifest,
    sweep,
    totals_of,
)
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.task import Ended, R, Task, refuse_output_among, refuse_output_inside
from tokenmill.run.workspace import Workspace
from tokenmill.store.dataset import Dataset
from tokenmill.store.layout import token_dtype
from tokenmill.store.manifest import Manifest, Run
from tokenmill.store.policies import Policies

if TYPE_CHECKING:
    from tokenmill.packing.planning import PlanReport


@dataclass(frozen=True, slots=True, repr=False)
class BuildReport:
    """The result of a build."""

    out: str
    """The output folder or bucket prefix."""
    manifest: Manifest
    run: Run
    snapshot: Snapshot | None
    """The last progress. None if the dataset was already complete."""
    opened: Dataset | None = None
    """The opened dataset. None if it is in a bucket."""
    reused: Reused | None = None
    """Work reused from earlier attempts."""
    remarks: tuple[str, ...] = ()
    """Remarks on a complete dataset: libraries that now have another version."""
    plans: tuple[PlanReport, ...] = ()
    """The plans that the recipe asks for, one for each subset."""

    def __repr__(self) -> str:
        totals = self.manifest.totals
        counts = f"{totals.documents:,} documents, {totals.tokens:,} tokens"
        return f"<BuildReport {self.out!r}: {counts}, {totals.num_rejected:,} rejected>"


@dataclass(frozen=True, kw_only=True)
class TokenizerTask(Task[R]):
    """A task with a tokenizer."""

    reference: Reference

    @property
    def encoder(self) -> Encoder:
        return Encoder(self.reference, self.reference.largest_id)

    @property
    def local_engine(self) -> Callable[[], Engine | None] | None:
        return self.reference.twin if KINDS[self.file.kind].is_described else None

    def examine(self, engines: Sequence[str]) -> Exam:
        if (*engines,) == (REFERENCE,) and not KINDS[self.file.kind].may_vary:
            return answers(self.reference, [])
        return examine(self.reference, self.sample)

    def begin(self, workspace: Workspace) -> None:
        store_tokenizer(workspace, self.file)


@dataclass(frozen=True, kw_only=True)
class EncodeTask(TokenizerTask[BuildReport]):
    """A build."""

    noun: ClassVar[str] = "build"
    takes_agents: ClassVar[bool] = True
    recipe: Recipe
    boundary: BoundaryTokens
    candidates: Candidates
    """Why engines are used or not."""

    @classmethod
    def resolve(
        cls, recipe: Recipe, tokenizer: object, access: Access, executor: Executor | None = None
    ) -> EncodeTask:
        """Load the tokenizer and find the sources. Downloads no input and writes nothing.

        `tokenizer` is a tokenizer object to use instead of the one that the recipe names. `access`
        says how to read remote inputs. Local workers of `executor` start in the meantime.

        Raises:
            UserError: the recipe asks for something impossible.
        """
        named = recipe.tokenizer if tokenizer is None else tokenizer
        file = require_harmless(load_tokenizer_file(named, recipe.encode.rank_encoding))
        is_chat = recipe.chat.chat is not None
        control = recipe.encode.special_tokens == "control" or is_chat
        refuse_output_among(recipe.inputs, recipe.out)
        sources = list_sources(recipe.inputs, recipe.read.per_input, access)
        refuse_output_inside(sources, recipe.out)
        candidates = Candidates((), {})  # a complete dataset does not need the named engine
        with contextlib.suppress(UserError):
            is_audited = recipe.limits.audit_share is not None
            num_bytes = math.inf if is_audited else sum(map(decompressed_bytes, sources))
            candidates = rank_engines(file, control, recipe.encode.engine, num_bytes)
        is_slow, policies, fields = KINDS[file.kind].is_slow, recipe.policies, recipe.read.fields
        if isinstance(executor, WorkerPool):
            unit_bytes = choose_unit_bytes(sources, slow=is_slow)
            executor.expect(count_units(sources, fields, unit_bytes))
            if candidates.names:
                executor.preload(file, control, candidates.names[0])
        reference = load_reference(file, control)
        boundary = resolve_boundary_tokens(reference, file, recipe.encode.eos, recipe.encode.pad)
        if is_chat:  # the template writes the tokens at the start of a conversation
            chat = chat_policies(recipe.chat, file, reference, boundary.eos_id)
            policies = msgspec.structs.replace(policies, chat=chat)
            fields = replace(fields, rendering=conversations_of(policies, reference.special_tokens))
            if policies.has_template:
                boundary = replace(boundary, prefix=())
        if fields.has_no_loss:
            reference.encode_with_offsets("")  # a Python tokenizer refuses
        job = Job(
            task=Encode(
                tokenizer=spec_of(file, reference, control, boundary.prefix),
                eos_id=boundary.eos_id,
                pad_id=boundary.pad_id,
                policies=policies,
                engine=recipe.encode.engine,
            ),
            fields=fields,
            engines=candidates.names,
            limit=Limit(documents=recipe.read.max_documents, tokens=recipe.read.max_tokens),
            commits=commits_of(sources) or msgspec.UNSET,
            is_slow=is_slow,
            is_watched=bool(unknown_step(file)),
        )
        return cls(
            job=job,
            recipe=recipe,
            sources=sources,
            file=file,
            resources=choose_resources(recipe.resources),
            reference=reference,
            boundary=boundary,
            candidates=candidates,
        )

    @property
    def task(self) -> Encode:
        """What workers do."""
        assert isinstance(self.job.task, Encode)
        return self.job.task

    @property
    def policies(self) -> Policies:
        """The options that affect the content of the dataset."""
        return self.task.policies

    @property
    def dtype_name(self) -> str:
        """The dtype of the token ids in shards."""
        return token_dtype(self.reference.largest_id).name

    @property
    def token_bytes(self) -> int:
        return token_dtype(self.reference.largest_id).itemsize

    def prepared(self, access: Access, *, in_process: bool = False) -> EncodeTask:
        """Prepare the task, as for all kinds of runs.

        Raises:
            UserError: the named engine cannot be used; see `Task.prepared`.
        """
        if not self.job.engines:
            rank_engines(self.file, self.policies.control_tokens, self.task.engine)  # says why
        return super().prepared(access, in_process=in_process)

    def deciding(self, engine: str) -> frozenset[str]:
        return super().deciding(engine) | ({"jinja2"} if self.policies.chat else set())

    def fingerprint(self) -> str:
        return fingerprint_of(self.file).value

    def finish(self, ended: Ended) -> BuildReport:
        """Write the manifest, which completes the dataset.

        Any agent can do this: equal receipts give equal manifests, and the first manifest counts.
        """
        manifest = self._describe(ended)
        commit = self.file.commit or msgspec.UNSET
        record = msgspec.structs.replace(ended.record(), tokenizer_commit=commit)
        run = publish(ended.workspace.store, record, manifest)
        place = ended.workspace.take_name()
        sweep(place, (file.name for file in manifest.files))
        ended.board.refresh(force=True)
        opened = Dataset(place.folder) if place.bucket is None else None
        shot = ended.board.snapshot()
        return BuildReport(place.location, manifest, run, shot, opened, reused=ended.reused)

    def found(self, workspace: Workspace, on_compare: Callable[[Source], None]) -> BuildReport:
        opened = Dataset(workspace.folder) if workspace.bucket is None else None
        manifest = opened.manifest if opened else stored_manifest(workspace.store)
        read = msgspec.convert(manifest.policies, Policies).read
        limited = read.max_documents is not None or read.max_tokens is not None
        run, remarks = agree_on_finished(
            workspace, self, manifest.sources, limited=limited, on_compare=on_compare
        )
        sweep(workspace, (file.name for file in manifest.files))
        return BuildReport(workspace.location, manifest, run, None, opened, remarks=tuple(remarks))

    def _describe(self, ended: Ended) -> Manifest:
        """Check the number of rejected records, and return the manifest.

        Raises:
            DataError: too many records were rejected, or there are no documents.
        """
        receipts = ended.ledger.final_receipts()
        sources = describe_sources(self.sources, receipts, ended.ledger.quarantined)
        totals, names = totals_of(sources), [file.name for file in rejected_files(receipts)]
        judge_rejected(totals, self.recipe.limits.max_bad, ended.workspace.store, names)
        if not totals.documents:
            raise DataError("nothing to write", why="no input holds a document with text")
        return describe(
            ended.workspace,
            self.file,
            self.reference,
            self.boundary,
            ended.fingerprint,
            msgspec.to_builtins(self.policies),
            sources,
            receipts,
        )


def spec_of(
    file: TokenizerFile, reference: Reference, control_tokens: bool, prefix_ids: tuple[int, ...]
) -> TokenizerSpec:
    """Return what workers must know of a tokenizer besides its file."""
    return TokenizerSpec(
        kind=file.kind,
        encoding=file.encoding,
        sha256=file.sha256,
        control_tokens=control_tokens,
        largest_id=reference.largest_id,
        unk_id=reference.unk_id,
        special_tokens=list(reference.special_tokens),
        prefix_ids=list(prefix_ids),
    )

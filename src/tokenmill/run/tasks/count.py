"""Counts: turn a corpus into a folder of word counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from msgspec import UNSET

from tokenmill.core.errors import DataError, InternalError
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Encoder
from tokenmill.encode.exactness import Exam
from tokenmill.encode.probe import unknown_step
from tokenmill.encode.split_file import as_tokenizer_file, find_split
from tokenmill.encode.splitters import LIBRARY, Splitter, load_splitter, word_splitters
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import Split, with_digits
from tokenmill.read.per_input import PerInput
from tokenmill.read.source import Access, Source
from tokenmill.read.sources import commits_of, list_by_input
from tokenmill.read.units import choose_unit_bytes, count_units
from tokenmill.run.agreement import agree_on_finished
from tokenmill.run.executor import Executor, Receipt
from tokenmill.run.job import Count, Job, Limit
from tokenmill.run.journal.ledger import Reused, judge_rejected
from tokenmill.run.machine import choose_resources
from tokenmill.run.pool import WorkerPool
from tokenmill.run.progress import Snapshot
from tokenmill.run.publish import describe_sources, rejected_files, sweep, totals_of
from tokenmill.run.recipe.options import (
    INPUT_GROUPS,
    NOT_FOR_COUNTS,
    CountRecipe,
    read_policies,
)
from tokenmill.run.task import Ended, Task, refuse_output_inside
from tokenmill.run.units.count import LARGEST_HASH, MAX_GROUPS, RUN_PREFIX, too_many_groups
from tokenmill.run.workspace import OutputKind, Workspace
from tokenmill.store.canonical import write_sealed
from tokenmill.store.counts.folder import (
    COUNTS_FORMAT,
    COUNTS_NAME,
    CountsFolder,
    CountsManifest,
    open_counts,
    write_counts,
)
from tokenmill.store.counts.runs import open_run
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import RUN_NAME, Run
from tokenmill.store.ownership import COUNTS_FILES

COUNTS_OUTPUT = OutputKind(
    manifest=COUNTS_NAME,
    start=b'{\n  "format": "%s",\n' % COUNTS_FORMAT.encode(),
    folders=("rejected", "work"),
    files=COUNTS_FILES,
    noun="word counts",
    other="other word counts",
)


@dataclass(frozen=True, slots=True)
class CountReport:
    """The result of counting words."""

    counts: CountsFolder
    run: Run | None = None
    """How the words were counted. None if counts were added up."""
    snapshot: Snapshot | None = None
    """The last progress. None if the counts were already complete, or were added up."""
    reused: Reused | None = None
    """Work reused from earlier attempts."""
    remarks: tuple[str, ...] = ()
    """Remarks on complete counts: libraries that now have another version."""


@dataclass(frozen=True, kw_only=True)
class CountTask(Task[CountReport]):
    """A count."""

    noun: ClassVar[str] = "count"
    recipe: CountRecipe
    library: Splitter
    """The reference for splits."""

    @classmethod
    def resolve(
        cls,
        recipe: CountRecipe,
        sources: Sequence[Source] | None,
        access: Access,
        executor: Executor | None = None,
    ) -> CountTask:
        """Find the split, and the sources unless they are given. Downloads and writes nothing.

        Raises:
            UserError: the recipe asks for something impossible.
        """
        split = with_digits(find_split(recipe.split), recipe.digits)
        if sources is None:
            sources, names = list_with_groups(recipe.inputs, recipe.read.per_input, access)
        else:
            names = [source.name for source in sources]
        refuse_output_inside(sources, recipe.out)
        fields, file = recipe.reading.fields, as_tokenizer_file(split)
        if isinstance(executor, WorkerPool):
            executor.expect(count_units(sources, fields, choose_unit_bytes(sources)))
        read = read_policies(recipe.read)
        read.setdefault("streaming", False)  # counts have always recorded it
        job = Job(
            task=Count(
                split=split,
                by=recipe.by,
                groups=names if recipe.by == INPUT_GROUPS else [],
                column=fields.keep[0] if fields.keep else "",
                min_count=recipe.min_count,
                policies={name: each for name, each in read.items() if name not in NOT_FOR_COUNTS},
            ),
            fields=fields,
            engines=word_splitters(split),
            limit=Limit(documents=recipe.read.max_documents),
            commits=commits_of(sources) or UNSET,
            is_watched=bool(unknown_step(file)),
        )
        return cls(
            job=job,
            recipe=recipe,
            sources=list(sources),
            file=file,
            resources=choose_resources(recipe.resources),
            library=load_splitter(split, LIBRARY, 0),
        )

    @property
    def task(self) -> Count:
        """What workers do."""
        assert isinstance(self.job.task, Count)
        return self.job.task

    @property
    def split(self) -> Split:
        """How texts are cut into words."""
        return self.task.split

    @property
    def encoder(self) -> Encoder:
        return Encoder(self.library, LARGEST_HASH)

    def deciding(self, engine: str) -> frozenset[str]:
        compiled = frozenset() if engine == LIBRARY else frozenset({"numba", "python"})
        return super().deciding("") | compiled

    def examine(self, engines: Sequence[str]) -> Exam:
        texts = [*adversarial_texts(()), *self.sample]
        return Exam(texts, self.encoder.encode(texts))

    def finish(self, ended: Ended) -> CountReport:
        """Merge the sorted runs of all units, which completes the counts."""
        ledger, workspace = ended.ledger, ended.workspace
        receipts = ledger.final_receipts()
        description = self._describe(receipts, ledger.quarantined)
        names = [file.name for file in rejected_files(receipts)]
        max_bad = self.recipe.limits.max_bad
        judge_rejected(description.totals, max_bad, workspace.store, names)
        if not description.totals.documents:
            raise DataError("nothing to count", why="no input holds a document with text")
        run = ended.record()
        write_sealed(workspace.folder / RUN_NAME, run)
        _merge_runs(workspace.folder, description, receipts)
        ended.board.refresh(force=True)
        place = workspace.take_name()
        counts = open_counts(place.folder)
        sweep(place, names)
        return CountReport(counts, run, ended.board.snapshot(), ended.reused)

    def found(self, workspace: Workspace, on_compare: Callable[[Source], None]) -> CountReport:
        counts = open_counts(workspace.folder)
        limited = counts.manifest.policies.get("max_documents") is not None
        run, remarks = agree_on_finished(
            workspace, self, counts.manifest.sources, limited=limited, on_compare=on_compare
        )
        sweep(workspace)
        return CountReport(counts, run, None, remarks=tuple(remarks))

    def _describe(self, receipts: Sequence[Receipt], quarantined: dict[int, str]) -> CountsManifest:
        sources = describe_sources(self.sources, receipts, quarantined)
        return CountsManifest(
            split=self.split,
            by=(self.recipe.by or "").removesuffix("?"),
            min_count=self.recipe.min_count,
            policies=self.task.policies,
            totals=totals_of(sources),
            sources=sources,
        )


def list_with_groups(
    inputs: Sequence[str], chosen: PerInput, access: Access
) -> tuple[list[Source], list[str]]:
    """Return the sources like `list_sources`, and the group name of each source's input."""
    by_input = list_by_input(inputs, chosen, access)
    labels = group_names(inputs)
    names = [name for name, found in zip(labels, by_input, strict=True) for _ in found]
    return [source for of_input in by_input for source in of_input], names


def group_names(inputs: Sequence[str]) -> list[str]:
    """Return the group name of each input: its last part, such as "web" for "/data/web/".

    Inputs with the same last part get their full names. The last part is the same on every
    machine, even if the folders above it differ.
    """
    short = [name.rstrip("/").rpartition("/")[2] or name for name in inputs]
    return [
        name if short.count(label) > 1 else label for name, label in zip(inputs, short, strict=True)
    ]


def _merge_runs(folder: Path, description: CountsManifest, receipts: Sequence[Receipt]) -> None:
    """Merge the runs of all units into the folder, which completes the counts.

    Raises:
        DataError: there are too many groups.
    """
    groups: dict[str, list[WordCounts]] = {} if description.by else {"": []}
    occurrences = 0
    for receipt in receipts:
        for part in (file.name for file in receipt.files if file.name.startswith(RUN_PREFIX)):
            for name, words in open_run(folder / part_name(receipt.key, part)).items():
                groups.setdefault(name, []).append(words)
                occurrences += words.num_occurrences
    if len(groups) > MAX_GROUPS:
        raise too_many_groups(description.by)
    if occurrences != description.totals.tokens:
        why = f"units counted {description.totals.tokens:,}, their runs hold {occurrences:,}"
        raise InternalError("the totals of word counts do not match", why=why)
    for counts in (description.totals, *(source.counts for source in description.sources)):
        counts.tokens = 0  # the groups record the number of words
    write_counts(folder, description, groups)

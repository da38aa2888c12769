"""The main path of measuring: tokenize a corpus, and return only statistics."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tokenmill.core.records import Advance
from tokenmill.encode.engine import Encoder, Reference
from tokenmill.encode.engine_ranking import rank_engines
from tokenmill.encode.exactness import examine
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.measure.measurer import OFFSETS_BYTES
from tokenmill.encode.measure.tallies import Tally
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.read.fields import Fields
from tokenmill.read.formats.tables.isolated import end_idle_parsers
from tokenmill.read.source import Source
from tokenmill.read.units import choose_unit_bytes, count_units, cut_units, decompressed_bytes
from tokenmill.run.commit.ledger import Ledger
from tokenmill.run.commit.publish import store_tokenizer
from tokenmill.run.commit.workspace import Workspace
from tokenmill.run.job import CheckedTask, Job, board_for
from tokenmill.run.local.processes import LocalProcesses
from tokenmill.run.machine.resources import Resources, choose_resources
from tokenmill.run.progress import Snapshot
from tokenmill.run.recipe.options import LimitOptions, ResourceOptions
from tokenmill.run.start.inputs import sample_texts
from tokenmill.run.start.preparation import source_for_workers
from tokenmill.run.units.measure import TALLY_PART
from tokenmill.run.units.tasks import MeasureTask
from tokenmill.store.layout import part_name

SMALL_BYTES = 32 << 20
"""Texts up to this size are measured in this process, before workers would be ready."""


@dataclass(frozen=True, slots=True)
class MeasuredTokenizer:
    """A tokenizer to measure."""

    file: TokenizerFile
    reference: Reference
    control_tokens: bool


@dataclass(frozen=True, slots=True)
class Measuring:
    """Options of a measurement."""

    words: str
    """The rule that cuts texts into words."""
    sequence_lengths: tuple[int, ...]
    groups: tuple[str, ...] = ()
    """The group of each source. Empty if groups do not come from sources."""
    column: str = ""
    """The kept column with the groups. "" if groups do not come from the documents."""


def measure(
    tokenizer: MeasuredTokenizer,
    sources: Sequence[Source],
    fields: Fields,
    how: Measuring,
    options: ResourceOptions | None = None,
    advance: Advance = lambda stage, done, total: None,
) -> Tally:
    """Measure how a tokenizer encodes all documents. The number of workers changes nothing.

    Raises:
        DataError: an input is damaged.
        EngineError: a text cannot be encoded, or no engine matches the reference.
        TokenmillError: see `tokenmill.core.errors`.
    """
    resources = choose_resources(options or ResourceOptions())
    small = sum(map(decompressed_bytes, sources)) <= SMALL_BYTES
    if small and (options is None or options.workers is None):
        resources = replace(resources, num_workers=1)
    with (
        tempfile.TemporaryDirectory(prefix="tokenmill-") as folder,
        LocalProcesses(resources) as executor,
    ):
        run = _Run(Workspace(Path(folder)), tokenizer, sources, fields, how, resources)
        return run.run(executor, advance)


@dataclass(frozen=True, slots=True)
class _Run:
    workspace: Workspace
    tokenizer: MeasuredTokenizer
    sources: Sequence[Source]
    fields: Fields
    how: Measuring
    resources: Resources

    def run(self, executor: LocalProcesses, advance: Advance) -> Tally:
        """Run all units and add up their tallies."""
        file, reference = self.tokenizer.file, self.tokenizer.reference
        self.workspace.create()
        store_tokenizer(self.workspace, file)
        unit_bytes = choose_unit_bytes(self.sources, slow=KINDS[file.kind].is_slow)
        items = list(cut_units(self.sources, self.fields, unit_bytes))
        executor.expect(count_units(self.sources, self.fields, unit_bytes))
        names = rank_engines(file, self.tokenizer.control_tokens).names
        executor.preload(file, self.tokenizer.control_tokens, names[0])
        limits = LimitOptions()
        ledger = Ledger(self.workspace.store, items)

        def tell(snapshot: Snapshot) -> None:
            advance("documents", snapshot.done_bytes, snapshot.total_bytes)

        num_bytes = sum(source.num_bytes for source in self.sources)
        sample = sample_texts(self.sources, self.fields)
        if self.resources.num_workers > 1:
            end_idle_parsers()  # each worker has its own
        encoder = Encoder(reference, reference.largest_id)
        twin = reference.twin if KINDS[file.kind].is_described else None
        with ThreadPoolExecutor(1, "calibration") as background:
            exam = background.submit(examine, reference, sample)
            job = Job(
                workspace=self.workspace,
                sources=self.sources,
                fields=self.fields,
                resources=self.resources,
                limits=limits,
                executor=executor,
                ledger=ledger,
                board=board_for(ledger, num_bytes, 0, tell, executor),
                checked=CheckedTask(self._task(), file, exam, encoder, twin),
            )
            job.run(names, lambda engine, remark: None)
        return self._total(ledger)

    def _task(self) -> MeasureTask:
        file, reference, how = self.tokenizer.file, self.tokenizer.reference, self.how
        decompressed = sum(map(decompressed_bytes, self.sources))
        in_process = self.resources.num_workers == 1
        return MeasureTask(
            tokenizer_dir=str((self.workspace.folder / "tokenizer").resolve()),
            tokenizer_kind=file.kind,
            tokenizer_source="" if in_process else source_for_workers(file),
            encoding=file.encoding,
            control_tokens=self.tokenizer.control_tokens,
            largest_id=reference.largest_id,
            unk_id=reference.unk_id,
            num_around=len(reference.prefix) + 1,
            words=how.words,
            sequence_lengths=list(how.sequence_lengths),
            groups=list(how.groups),
            column=how.column,
            offsets_share=min(OFFSETS_BYTES / max(decompressed, 1), 1.0),
        )

    def _total(self, ledger: Ledger) -> Tally:
        total = Tally.empty(self.tokenizer.reference.largest_id, self.how.sequence_lengths)
        for receipt in ledger.final_receipts():
            with np.load(self.workspace.folder / part_name(receipt.key, TALLY_PART)) as arrays:
                total.add(Tally.of_arrays(arrays))
        return total

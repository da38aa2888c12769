"""Measurements: tokenize a corpus, and return only statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokenmill.encode.engine import Reference
from tokenmill.encode.engine_ranking import rank_engines
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.measure.measurer import OFFSETS_BYTES
from tokenmill.encode.measure.tallies import Tally
from tokenmill.encode.probe import unknown_step
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.read.source import Access, Source
from tokenmill.read.units import choose_unit_bytes, count_units, decompressed_bytes
from tokenmill.run.executor import Executor
from tokenmill.run.job import Job, Measure
from tokenmill.run.machine import choose_resources
from tokenmill.run.pool import WorkerPool
from tokenmill.run.recipe.options import MeasureRecipe
from tokenmill.run.task import Ended
from tokenmill.run.tasks.encode import TokenizerTask, spec_of
from tokenmill.run.units.measure import TALLY_PART
from tokenmill.store.layout import part_name

SMALL_BYTES = 32 << 20
"""Texts up to this size are measured in this process, before workers would be ready."""


@dataclass(frozen=True, slots=True)
class MeasuredTokenizer:
    """A tokenizer to measure."""

    file: TokenizerFile
    reference: Reference
    control_tokens: bool


@dataclass(frozen=True, kw_only=True)
class MeasureTask(TokenizerTask[Tally]):
    """A measurement."""

    noun: ClassVar[str] = "measurement"

    @classmethod
    def resolve(
        cls, recipe: MeasureRecipe, tokenizer: MeasuredTokenizer, executor: Executor
    ) -> MeasureTask:
        """Rank the engines of a tokenizer. Local workers of `executor` start in the meantime."""
        file, reference, control = tokenizer.file, tokenizer.reference, tokenizer.control_tokens
        is_slow, engines = KINDS[file.kind].is_slow, rank_engines(file, control).names
        if isinstance(executor, WorkerPool):
            unit_bytes = choose_unit_bytes(recipe.sources, slow=is_slow)
            executor.expect(count_units(recipe.sources, recipe.fields, unit_bytes))
            executor.preload(file, control, engines[0])
        num_bytes = sum(map(decompressed_bytes, recipe.sources))
        job = Job(
            task=Measure(
                tokenizer=spec_of(file, reference, control, reference.prefix),
                words=recipe.words,
                sequence_lengths=list(recipe.sequence_lengths),
                groups=list(recipe.groups),
                column=recipe.column,
                offsets_share=min(OFFSETS_BYTES / max(num_bytes, 1), 1.0),
            ),
            fields=recipe.fields,
            engines=engines,
            is_slow=is_slow,
            is_watched=bool(unknown_step(file)),
        )
        return cls(
            job=job,
            recipe=recipe,
            sources=recipe.sources,
            file=file,
            resources=choose_resources(recipe.resources),
            reference=reference,
        )

    def finish(self, ended: Ended) -> Tally:
        """Add up the tallies of all units."""
        assert isinstance(self.job.task, Measure)
        total = Tally.empty(self.reference.largest_id, tuple(self.job.task.sequence_lengths))
        for receipt in ended.ledger.final_receipts():
            path = ended.workspace.folder / part_name(receipt.key, TALLY_PART)
            with np.load(path) as arrays:
                total.add(Tally.of_arrays(arrays))
        return total

    def _ready(self, access: Access) -> Sequence[Source]:
        return self.sources

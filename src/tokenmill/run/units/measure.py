"""Measure how a tokenizer encodes documents, with one tally for each unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenmill.core.records import DocumentBatch
from tokenmill.encode.engine import Engine
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.measure.measurer import Measured, Measurer, token_table
from tokenmill.encode.token_bytes import tokens_of
from tokenmill.run.job import Measure, Setup
from tokenmill.run.units.attempt import UnitAttempt, groups_of
from tokenmill.run.units.encode import TokenizerRunner
from tokenmill.store.digests import file_digest
from tokenmill.store.files import storage_errors
from tokenmill.store.manifest import Counts, FileEntry

TALLY_PART = "npz"


class MeasureRunner(TokenizerRunner):
    """Holds a table of tokens besides the engine."""

    def __init__(self, setup: Setup, task: Measure, engine: Engine | None) -> None:
        super().__init__(setup, task.tokenizer, engine)
        self.task, spec = task, self.spec
        tokens = None if KINDS[spec.kind].is_described else tokens_of(self.file)
        self.measured = Measured(
            largest_id=spec.largest_id,
            unk_id=spec.unk_id,
            table=None if tokens is None else token_table(tokens, spec.largest_id),
            num_around=len(spec.prefix_ids) + 1,
            encode_with_offsets=lambda text: self.reference.encode_with_offsets(text),
        )

    def begin(self, attempt: UnitAttempt) -> MeasuredUnit:
        """Start with an empty tally."""
        return MeasuredUnit(self, attempt)


class MeasuredUnit:
    """The tally of one unit. A UnitTask."""

    def __init__(self, runner: MeasureRunner, attempt: UnitAttempt) -> None:
        task = runner.task
        self._runner, self._task, self._attempt = runner, task, attempt
        self._measurer = Measurer(
            runner.measured, task.words, task.sequence_lengths, task.offsets_share
        )

    def add(self, group: Sequence[DocumentBatch]) -> None:
        """Encode and measure some batches of documents."""
        attempt = self._attempt
        texts = [text for batch in group for text in batch.texts]
        hashes = np.concatenate([attempt.hashes(batch) for batch in group])
        tokens = attempt.encode(self._runner.encoder, group)
        with attempt.timing("measure"):
            names = [name for batch in group for name in groups_of(self._task, batch)]
            self._measurer.tally.num_rejected += sum(len(batch.rejected) for batch in group)
            self._measurer.add(texts, tokens, names, hashes)
        for batch, part in zip(group, tokens.split([len(b.texts) for b in group]), strict=True):
            if self._runner.is_audited:
                attempt.sample(batch, part)
            written = part.lengths > 0
            num_bytes = int(batch.record_bytes[written].sum())
            attempt.book(batch, int(written.sum()), num_bytes, Counts(tokens=len(part.ids)))

    def close(self) -> list[FileEntry]:
        """Write the tally."""
        path = self._attempt.path(TALLY_PART)
        with storage_errors("write a tally", path):
            with open(path, "wb") as file:
                arrays: dict[str, Any] = dict(self._measurer.tally.arrays())
                np.savez(file, allow_pickle=False, **arrays)
            size, digest = path.stat().st_size, file_digest(path)
        return [FileEntry(name=TALLY_PART, bytes=size, xxh3_128=digest)]

    def discard(self) -> None:
        """Remove what was written."""
        self._attempt.remove_files()

"""Measure how a tokenizer encodes documents, with one tally for each unit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tokenmill.core.records import DocumentBatch, Int64Array, UInt32Array
from tokenmill.encode.engine import Encoder, Engine, Reference
from tokenmill.encode.engine_ranking import REFERENCE
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.measure.measurer import Measured, Measurer, token_table
from tokenmill.encode.probe import Step
from tokenmill.encode.token_bytes import tokens_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.run.job import Measure, Setup
from tokenmill.run.units.attempt import UnitAttempt
from tokenmill.run.units.count import NO_VALUE
from tokenmill.run.units.encode import engine_of, steps_of_tokenizer, tokenizer_of
from tokenmill.store.digests import file_digest
from tokenmill.store.files import storage_errors
from tokenmill.store.manifest import Counts, FileEntry

TALLY_PART = "npz"


class MeasureRunner:
    """Holds the engine and a table of its tokens. A TaskRunner."""

    def __init__(self, setup: Setup, task: Measure, engine: Engine | None) -> None:
        """Load the engine, unless `engine` is given: a Python tokenizer of this process."""
        self.setup, self.task = setup, task
        self._spec = spec = task.tokenizer
        self.encoder = Encoder(engine or engine_of(setup, spec), spec.largest_id)
        self._reference: Reference | None = None
        tokens = None
        if not KINDS[spec.kind].is_described:
            tokens = tokens_of(self._file)
        self.measured = Measured(
            largest_id=spec.largest_id,
            unk_id=spec.unk_id,
            table=None if tokens is None else token_table(tokens, spec.largest_id),
            num_around=len(spec.prefix_ids) + 1,
            encode_with_offsets=self._encode_with_offsets,
        )

    @cached_property
    def _file(self) -> TokenizerFile:
        return tokenizer_of(self.setup, self._spec)

    def steps(self) -> list[Step]:
        """Return the tokenizer's steps."""
        return steps_of_tokenizer(self.setup, self._spec)

    def begin(self, attempt: UnitAttempt) -> MeasuredUnit:
        """Start with an empty tally."""
        return MeasuredUnit(self, attempt)

    def _encode_with_offsets(self, text: str) -> tuple[UInt32Array, Int64Array, Int64Array]:
        """Encode with the reference, which is only loaded when it is first needed."""
        if self._reference is None:
            self._reference = load_reference(self._file, self._spec.control_tokens)
        return self._reference.encode_with_offsets(text)


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
        is_reference = self._runner.setup.engine == REFERENCE
        if not is_reference or KINDS[self._task.tokenizer.kind].may_vary:
            # Audit at least one short document of each unit.
            places = np.concatenate([attempt.audit_hashes(batch) for batch in group])
            attempt.audited.add(texts, tokens, places, with_short=attempt.tally.bytes == 0)
        with attempt.timing("measure"):
            names = [name for batch in group for name in self._groups(batch)]
            self._measurer.tally.num_rejected += sum(len(batch.rejected) for batch in group)
            self._measurer.add(texts, tokens, names, hashes)
        for batch, part in zip(group, tokens.split([len(b.texts) for b in group]), strict=True):
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

    def _groups(self, batch: DocumentBatch) -> list[str]:
        """Return the group of each document."""
        if self._task.column:
            values = batch.columns[self._task.column]
            return [value or NO_VALUE for value in values]
        name = self._task.groups[batch.source] if self._task.groups else ""
        return [name] * len(batch.texts)

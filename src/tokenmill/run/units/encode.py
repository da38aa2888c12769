"""Turn documents into a shard: encode them, apply limits, add boundary tokens, write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import DataError, UserError
from tokenmill.core.records import CharSpans, DocumentBatch, TokenBatch
from tokenmill.encode.boundaries import enclose_documents, ends_with, join_batches, without_ends
from tokenmill.encode.engine import Encoder, Engine, Reference
from tokenmill.encode.engine_ranking import REFERENCE, load_engine
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.probe import Step, steps_before_model
from tokenmill.encode.spans import SpanEncoder
from tokenmill.encode.special_strings import SpecialStrings
from tokenmill.encode.token_bytes import byte_level_tokens
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import open_stored_tokenizer
from tokenmill.run.job import NO_LIMIT, Encode, Setup, TokenizerSpec
from tokenmill.run.units.attempt import UnitAttempt, chosen
from tokenmill.store.documents_table import DocumentRows
from tokenmill.store.files import storage_error
from tokenmill.store.layout import token_dtype
from tokenmill.store.manifest import Counts, FileEntry
from tokenmill.store.shard import ShardLayout, ShardWriter


class TokenizerRunner:
    """Holds the engine of a tokenizer. A TaskRunner."""

    def __init__(self, setup: Setup, spec: TokenizerSpec, engine: Engine | None) -> None:
        """Load the engine, unless `engine` is given: a Python tokenizer of this process."""
        self.setup, self.spec = setup, spec
        if engine is None:
            cache_bytes = setup.resources.cache_bytes
            engine = load_engine(setup.engine, self.file, spec.control_tokens, cache_bytes)
        self.encoder = Encoder(engine, spec.largest_id)
        self.is_audited = setup.engine != REFERENCE or KINDS[spec.kind].may_vary
        """The reference needs no audit, unless it is a Python object that may vary."""

    @cached_property
    def file(self) -> TokenizerFile:
        """The stored tokenizer, or a Python tokenizer that is created again."""
        return tokenizer_of(self.setup, self.spec)

    @cached_property
    def reference(self) -> Reference:
        """The reference, which is loaded when it is first needed."""
        return load_reference(self.file, self.spec.control_tokens)

    def steps(self) -> list[Step]:
        """Return the tokenizer's steps that can run alone. Python tokenizers have none."""
        return steps_before_model(self.file) if KINDS[self.spec.kind].is_json else []


class EncodeRunner(TokenizerRunner):
    """Holds what shards need besides the engine."""

    def __init__(self, setup: Setup, task: Encode, engine: Engine | None) -> None:
        super().__init__(setup, task.tokenizer, engine)
        self.task, fields = task, setup.job.fields
        self.spans = SpanEncoder(lambda: self.reference, lambda: byte_level_tokens(self.file))
        self.special_strings = SpecialStrings(self.spec.special_tokens)
        dtype = token_dtype(self.spec.largest_id)
        self.layout = ShardLayout(dtype, fields.keep, fields.has_no_loss)

    def begin(self, attempt: UnitAttempt) -> ShardTask:
        """Start a shard."""
        return ShardTask(self, attempt)


def tokenizer_of(setup: Setup, spec: TokenizerSpec) -> TokenizerFile:
    """Return the stored tokenizer of a job, or create a Python tokenizer again."""
    source = setup.tokenizer_source
    if KINDS[spec.kind].is_described:
        from tokenmill.encode.references.python_source import make_tokenizer

        made = make_tokenizer(source)
        return TokenizerFile(spec.kind, b"", origin=source[:80], tokenizer=made)
    folder = Path(setup.tokenizer_dir)
    try:
        return open_stored_tokenizer(folder, spec.kind, spec.encoding)
    except UserError as error:
        if isinstance(cause := error.__cause__, OSError):  # the user's own file was read before
            doing = "read the stored tokenizer of the build"
            raise storage_error(cause, doing, folder) from error
        raise


class ShardTask:
    """One shard. A UnitTask."""

    def __init__(self, runner: EncodeRunner, attempt: UnitAttempt) -> None:
        self.runner, self.task, self.attempt = runner, runner.task, attempt
        self.policies, self.prefix = runner.task.policies, runner.spec.prefix_ids
        self.writer = ShardWriter(attempt.folder, attempt.stem, runner.layout, attempt.source_names)

    def add(self, group: Sequence[DocumentBatch]) -> None:
        """Encode, check and write some batches of documents."""
        attempt = self.attempt
        tokens = attempt.encode(self.runner.encoder, group)
        screened: list[tuple[DocumentBatch, TokenBatch]] = []
        for batch, part in zip(group, tokens.split([len(b.texts) for b in group]), strict=True):
            screened.append(self._within_limit(batch, part))
            if self.runner.is_audited:
                attempt.sample(*screened[-1])
            self._book(*screened[-1])
            if attempt.limited:
                break
        with attempt.timing("write"):
            self._write(screened)

    def close(self) -> list[FileEntry]:
        """Finish the shard."""
        return self.writer.close()

    def discard(self) -> None:
        """Remove the shard."""
        self.writer.discard()

    def _within_limit(
        self, batch: DocumentBatch, tokens: TokenBatch
    ) -> tuple[DocumentBatch, TokenBatch]:
        """Return the documents before the first that would exceed a limit."""
        limit = self.attempt.assignment.limit
        if limit == NO_LIMIT:
            return batch, tokens
        written = tokens.lengths > 0
        enclosed = (tokens.lengths - self._ends(tokens) + len(self.prefix) + 1) * written
        within = np.ones(len(written), dtype=bool)
        if limit.documents is not None:
            within &= np.cumsum(written) <= limit.documents - self.attempt.tally.documents
        if limit.tokens is not None:
            within &= np.cumsum(enclosed) <= limit.tokens - self.attempt.tally.tokens
        if within.all():
            return batch, tokens
        self.attempt.limited = True
        count = int(np.argmin(within))
        return batch.head(count), tokens.head(count)

    def _book(self, batch: DocumentBatch, tokens: TokenBatch) -> None:
        """Count a batch, and raise an error for text that a policy forbids."""
        policies, unk_id = self.policies.encode, self.runner.spec.unk_id
        special = self._special_strings(batch)
        if special and policies.special_tokens == "error":
            index = next(iter(special))
            self._refuse(batch, index, "a special token in its text", "--special-tokens text")
        unknown: Sequence[int] = ()
        if unk_id is not None:
            unknown = np.flatnonzero(tokens.ids == unk_id).tolist()
        if unknown and policies.unknown == "error":
            index = int(np.searchsorted(tokens.offsets, unknown[0], side="right")) - 1
            self._refuse(batch, index, "an unknown token", "--unknown count")
        written = tokens.lengths > 0
        documents = int(written.sum())
        extra = Counts(
            tokens=len(tokens.ids)
            - int(self._ends(tokens).sum())
            + documents * (len(self.prefix) + 1),
            special_strings=sum(special.values()),
            unknown_tokens=len(unknown),
        )
        self.attempt.book(batch, documents, int(batch.record_bytes[written].sum()), extra)

    def _special_strings(self, batch: DocumentBatch) -> dict[int, int]:
        """Return the number of special-token strings in each text that has any, by index."""
        if batch.special_strings is None:
            return self.runner.special_strings.counts(batch.texts)
        return {i: n for i, n in enumerate(batch.special_strings.tolist()) if n}

    def _ends(self, tokens: TokenBatch) -> npt.NDArray[np.bool_]:
        """Return which documents already end with the EOS, of shape (num_documents,)."""
        if not self.policies.chat:
            return np.zeros(len(tokens.lengths), bool)
        return ends_with(tokens, self.task.eos_id)

    def _refuse(self, batch: DocumentBatch, index: int, what: str, option: str) -> NoReturn:
        name = self.attempt.sources[batch.source].name
        raise DataError(
            f"a document has {what}",
            where=f"{name}, position {batch.positions[index]}",
            why=f"the recipe forbids it: {batch.texts[index][:80]!r}",
            hint=f"clean the document, or allow it with {option} and --overwrite",
        )

    def _write(self, screened: Sequence[tuple[DocumentBatch, TokenBatch]]) -> None:
        runner, policies = self.runner, self.policies
        batches, parts, no_loss = [], [], []
        for batch, tokens in screened:
            self.writer.reject(batch.rejected)
            written = tokens.lengths > 0
            if not written.all():
                batch, tokens = batch.select(written), tokens.without_empty()
            shift = len(self.prefix)
            if batch.no_loss is not None and not policies.chat:
                no_loss += runner.spans.ranges(batch.texts, batch.no_loss, tokens, shift)
            elif batch.no_loss is not None:
                found = runner.spans.ranges_of_turns(batch.texts, batch.no_loss, tokens)
                ended = self._ends(tokens)
                tokens = without_ends(tokens, ended)
                no_loss += _with_ends(found, tokens, ended | (not policies.has_template), shift)
            batches.append(batch)
            parts.append(tokens)
        tokens = join_batches(parts)
        ids, lengths = enclose_documents(
            tokens, self.prefix, (self.task.eos_id,), runner.layout.dtype
        )
        if len(lengths):
            rows = DocumentRows.of(batches, self._in_validation(batches), no_loss)
            self.writer.append(rows, ids, lengths)

    def _in_validation(self, batches: Sequence[DocumentBatch]) -> npt.NDArray[np.bool_]:
        """Return which documents are in the validation subset, of shape (num_documents,)."""
        if not self.policies.read.validation:
            return np.zeros(sum(len(batch.texts) for batch in batches), bool)
        hashes = np.concatenate([self.attempt.hashes(batch) for batch in batches])
        return chosen(hashes, self.policies.read.validation)


def _with_ends(
    no_loss: Sequence[CharSpans],
    tokens: TokenBatch,
    eos_has_loss: npt.NDArray[np.bool_],
    shift: int,
) -> list[CharSpans]:
    """Shift ranges without loss by the prefix, and add the EOS where it has no loss.

    The `shift` tokens of the prefix belong to a range at the start of the conversation.
    """
    ranges = [[(a + shift if a else 0, b + shift) for a, b in spans] for spans in no_loss]
    ends = zip(ranges, (tokens.lengths + shift).tolist(), eos_has_loss.tolist(), strict=True)
    return [spans if has_loss else _joined(spans, end) for spans, end, has_loss in ends]


def _joined(spans: CharSpans, end: int) -> CharSpans:
    """Add one token to sorted ranges, merged with the last range if they touch."""
    if spans and spans[-1][1] == end:
        return [*spans[:-1], (spans[-1][0], end + 1)]
    return [*spans, (end, end + 1)]

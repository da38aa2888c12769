"""Training rows from text: every document is encoded again, with sampling, in each epoch.

    documents ─▶ sampled ids ─▶ prefix, EOS ─▶ pieces ─▶ StreamPacker ─▶ rows ─▶ batches

The encoding of a document depends on the seed, the epoch and the document's number. Documents keep
the order of the sources. Packing continues across epochs, and sequences are closed after the last
one. Empty rows fill up the last batch, so nothing is left out.

Every rank computes the whole stream and keeps its part of each batch, so rows are the same for any
number of ranks. Each rank encodes everything, or they share that: see `sharing`.

A state contains numbers and strings, but no text and no tokens: the place of the portion of
documents that the last batch ended in, what the packer contained before that portion, and the
places of the documents in it. To resume, these documents and the portion are encoded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import DocumentBatch, Segments, Sequences
from tokenmill.encode.boundary_policy import resolve_boundary_tokens
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.subword import SubwordSampler
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.load.rows.reader import Rows
from tokenmill.load.text.pieces import (
    BatchPlace,
    DocumentEncoder,
    Key,
    Piece,
    PieceStore,
    RowShape,
    TextCorpus,
)
from tokenmill.load.text.sharing import Encoded, Exchange, PortionEncoder
from tokenmill.load.text.state import (
    Cursor,
    DocumentOrigin,
    StreamCounts,
    StreamState,
    Waypoint,
    checked_state,
)
from tokenmill.packing.long_documents import cut
from tokenmill.packing.options import MAX_SEQUENCE_LENGTH, MIN_SEQUENCE_LENGTH, PackOptions
from tokenmill.packing.strategy import Pieces
from tokenmill.packing.streaming import StreamPacker
from tokenmill.read.fields import Fields
from tokenmill.read.per_input import PerInput
from tokenmill.read.rendering.renderer import TextTemplate
from tokenmill.store.row_format import Labels

Portion = tuple[Cursor, DocumentBatch, Encoded]
"""Where a portion begins, and its documents."""

Positive = Annotated[int, Meta(ge=1)]


class TextStreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a text stream. To resume, use the same options; only `max_bad` may change."""

    sequence_length: Annotated[int, Meta(ge=MIN_SEQUENCE_LENGTH, le=MAX_SEQUENCE_LENGTH)]
    global_batch_size: Positive
    """Rows in a step, over all ranks."""
    dropout: float | None = None
    """For BPE: probability of skipping a merge."""
    alpha: float | None = None
    """For Unigram: exponent of the probability of a segmentation."""
    seed: int = 0
    epochs: Positive = 1
    labels: Labels = "aligned"
    open_sequences: Positive = 64
    """Number of open sequences. More of them pack better, but make the state larger."""
    max_segments: Positive | None = None
    """Maximum number of documents in a sequence. It gives cu_seqlens a fixed size."""
    format: str | list[str] = "auto"
    text_field: str | list[str] = "text"
    text_template: str | None = None
    separator: str | None = None
    eos: str | None = None
    pad: str | None = None
    max_bad: Annotated[float, Meta(ge=0, lt=1)] = 0.0001
    """Share of records that may be unreadable, checked at the end of each epoch."""

    @property
    def identity(self) -> dict[str, Any]:
        """The options that must not change when resuming."""
        values: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, max_bad=0.0))
        return values


class TextStream:
    """An iterator over batches of rows that are encoded from text while you train.

    `tokenmill.text_loader` wraps it for PyTorch. Each rank gets the same number of neighbouring
    rows of a global batch. With an `exchange`, ranks share the encoding, and must take batches and
    load states together.

    Raises:
        UserError: an option cannot be used with these inputs or this tokenizer.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        tokenizer: str,
        options: TextStreamOptions,
        *,
        rank: int = 0,
        world_size: int = 1,
        exchange: Exchange | None = None,
    ) -> None:
        self._options = options = checked_options(options)
        self.world_size, self.exchange = world_size, exchange
        self._share = share_of_batch(options.global_batch_size, rank, world_size)
        template = options.text_template
        rendering = None if template is None else TextTemplate(template)
        chosen = PerInput(options.format, options.text_field)
        fields = Fields(chosen.text, separator=options.separator, rendering=rendering)
        self._documents = TextCorpus(inputs, fields, chosen)
        file = require_harmless(load_tokenizer_file(tokenizer))
        sampler = SubwordSampler(file, dropout=options.dropout, alpha=options.alpha)
        boundary = resolve_boundary_tokens(sampler.reference, file, options.eos, options.pad)
        pad_id = boundary.eos_id if boundary.pad_id is None else boundary.pad_id
        self._encoder = DocumentEncoder(sampler, boundary, options.seed)
        length = options.sequence_length
        self._shape = RowShape(length, options.labels, pad_id, self._encoder.dtype)
        self._identity: dict[str, dict[str, Any]] = {
            "sources": self._documents.identity,
            "tokenizer": {
                "sha256": file.sha256,
                "version of tokenizers": sampler.reference.version,
                "prefix": list(boundary.prefix),
                "eos_id": boundary.eos_id,
                "pad_id": pad_id,
            },
            "options": options.identity,
        }
        self._encoding = PortionEncoder(
            self._encoder, repr(self._identity), rank, world_size, exchange
        )
        self._begin(Waypoint(packer=self._new_packer().state_dict()))

    @property
    def counts(self) -> StreamCounts:
        """Counts of what was read so far, over all epochs, including unreadable records."""
        return self._counts

    @property
    def most_segments(self) -> int | None:
        """The most segments of a row, including padding, or None if there is no limit."""
        most = self._options.max_segments
        return None if most is None else most + 1

    def __iter__(self) -> Iterator[Rows]:
        return self

    def __next__(self) -> Rows:
        """Return this rank's rows of the next global batch, of `sequence_length` tokens each.

        Raises:
            DataError: a source is damaged, or more records are bad than `max_bad` allows.
            UserError: ranks that share the encoding are at different places, or read other data.
        """
        size = self._options.global_batch_size
        sequences: list[list[Piece]] = []
        while len(sequences) < size:
            rows = self._rows[self._given : self._given + size - len(sequences)]
            if not rows and not self._pack_portion():
                break
            sequences += [self._pieces.take(row) for row in rows]
            self._given += len(rows)
        if not sequences:
            raise StopIteration
        sequences += [[]] * (size - len(sequences))
        self._settled = (self._before, self._given)
        return self._shape.rows(sequences[self._share])

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch, as numbers, strings and lists."""
        before, given = self._settled
        state = StreamState(identity=self._identity, before=before, rows_given=given)
        found: dict[str, Any] = msgspec.to_builtins(state)
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state. The number of ranks may differ.

        Raises:
            UserError: the state belongs to another stream. The message names the difference.
            InputChangedError: the sources changed since the state was saved.
        """
        found = checked_state(state, self._identity)
        self._begin(found.before)
        columns = found.before.packer["segments"][:3]
        keys: list[Key] = list(zip(*columns, strict=True))
        self._pieces.restore(keys, found.before.origins, self._documents, self._encoder)
        if found.rows_given:
            self._pack_portion()
        if found.rows_given > len(self._rows):
            why = f"it counts {found.rows_given} rows, and there are {len(self._rows)}"
            raise UserError("not the state of a text stream", why=why)
        for row in self._rows[: found.rows_given]:
            self._pieces.take(row)
        self._given = found.rows_given
        self._settled = (found.before, found.rows_given)

    def _begin(self, at: Waypoint) -> None:
        """Start at a waypoint, without pieces in memory."""
        self._packer = self._new_packer()
        self._packer.load_state_dict(at.packer)
        self._pieces = PieceStore()
        self._cursor, self._counts = at.cursor, at.counts
        self._origins = {origin.number: origin for origin in at.origins}
        self._portions: Iterator[Portion] | None = self._read(at.cursor)
        self._rows: list[list[Key]] = []  # of the last packed portion
        self._given, self._before = 0, at
        self._settled = (at, 0)

    def _new_packer(self) -> StreamPacker:
        options = self._options
        return StreamPacker(
            options.sequence_length,
            open_sequences=options.open_sequences,
            max_segments=options.max_segments,
        )

    def _read(self, start: Cursor) -> Iterator[Portion]:
        """Yield the portions from a cursor on.

        Those that are encoded at once are of one epoch, which is judged when all of it is packed.
        """
        for epoch in range(start.epoch, self._options.epochs):
            at = start if epoch == start.epoch else Cursor(epoch=epoch)
            batches = self._documents.read(BatchPlace(at.extent, at.batch))
            while found := list(islice(batches, self._encoding.at_once)):
                cursors = []
                for place, batch in found:
                    at = msgspec.structs.replace(at, extent=place.extent, batch=place.batch)
                    cursors.append(at)
                    at = msgspec.structs.replace(at, ordinal=at.ordinal + len(batch.texts))
                encoded = self._encoding.encode(cursors, [batch.texts for _, batch in found])
                for cursor, (_, batch), ids in zip(cursors, found, encoded, strict=True):
                    yield cursor, batch, ids
            self._counts.judge(self._options.max_bad)

    def _pack_portion(self) -> bool:
        """Pack the next documents. Return False if there are no more rows."""
        if self._portions is None:
            return False
        before = self._waypoint()
        found = next(self._portions, None)
        if found is None:
            self._portions = None
            self._rows = _keys_by_row(self._packer.finish())
        else:
            self._rows = self._pack(*found)
        self._before, self._given = before, 0
        return True

    def _pack(self, at: Cursor, batch: DocumentBatch, encoded: Encoded) -> list[list[Key]]:
        """Cut and pack documents, and return the rows that they complete."""
        cursor, (ids, offsets) = self._cursor, encoded
        lengths = np.diff(offsets).astype(np.int32)
        packed = np.flatnonzero(lengths).astype(np.int32)
        options = PackOptions(sequence_length=self._options.sequence_length)
        pieces, _ = cut(packed, lengths, options)
        numbers = pieces.segments.documents.astype(np.int64) + cursor.number
        segments = Segments(numbers, pieces.segments.starts, pieces.segments.lengths)  # type: ignore[arg-type]
        keys = _keys(segments)
        self._pieces.add(keys, cursor.number, ids, offsets)
        rows = _keys_by_row(self._packer.push(Pieces(segments, pieces.sizes)))
        self._pieces.detach(set(keys).difference(*rows))
        for index in packed.tolist():
            number = cursor.number + index
            self._origins[number] = DocumentOrigin(
                number, at.epoch, at.ordinal + index, at.extent, at.batch, index
            )
        self._counts = self._counts.plus(batch, len(packed), len(ids))
        self._cursor = Cursor(
            epoch=at.epoch,
            extent=at.extent,
            batch=at.batch + 1,
            ordinal=at.ordinal + len(batch.texts),
            number=cursor.number + len(batch.texts),
        )
        return rows

    def _waypoint(self) -> Waypoint:
        packer = self._packer.state_dict()
        origins = [self._origins[number] for number in sorted(set(packer["segments"][0]))]
        self._origins = {origin.number: origin for origin in origins}
        return Waypoint(packer=packer, cursor=self._cursor, origins=origins, counts=self._counts)


def _keys(segments: Segments) -> list[Key]:
    columns = (segments.documents, segments.starts, segments.lengths)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _keys_by_row(sequences: Sequences) -> list[list[Key]]:
    keys = _keys(sequences.segments)
    return [keys[first:stop] for first, stop in pairwise(sequences.offsets.tolist())]


def checked_options(options: TextStreamOptions) -> TextStreamOptions:
    """Return the options after checking every value."""
    try:
        return msgspec.convert(msgspec.to_builtins(options), TextStreamOptions)
    except msgspec.ValidationError as error:
        raise UserError("invalid text stream option", why=str(error)) from None


def share_of_batch(num_rows: int, rank: int, world_size: int) -> slice:
    """Return the rows of a batch for a rank."""
    if not 0 <= rank < world_size or num_rows % world_size:
        why = f"got rank={rank}, world_size={world_size} and {num_rows} rows"
        hint = "rank must be less than world_size, and world_size must divide global_batch_size"
        raise UserError("cannot divide the global batch among the ranks", why=why, hint=hint)
    size = num_rows // world_size
    return slice(rank * size, (rank + 1) * size)

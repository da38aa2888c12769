"""The documents of a text stream: read again from any place, encoded, and kept until their rows are
complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.core.errors import InputChangedError, InternalError, UserError
from tokenmill.core.records import DocumentBatch, Int64Array
from tokenmill.encode.boundaries import enclose_documents, offsets_from_lengths
from tokenmill.encode.boundary_policy import BoundaryTokens
from tokenmill.encode.subword import SubwordSampler
from tokenmill.kernels.permutation import document_keys
from tokenmill.kernels.rows import NO_TOKENS, Rules, assemble
from tokenmill.load.rows.reader import Rows
from tokenmill.load.text.state import DocumentOrigin
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.per_input import ANY_INPUT, PerInput
from tokenmill.read.sources import check_fields, find_sources
from tokenmill.read.units import Stream, choose_unit_bytes, cut_units
from tokenmill.store.layout import token_dtype
from tokenmill.store.row_format import Labels

BATCH_BYTES = 1 << 18
"""Bytes of text in a batch. Places count batches, so changing this invalidates saved states."""

Ids = npt.NDArray[np.integer]
Key = tuple[int, int, int]
"""Document number, first token and length of a piece."""


class BatchPlace(NamedTuple):
    """The place of a batch of documents in the sources."""

    extent: int
    """Number of the part of the sources: a unit of a build, or a file of a unit."""
    batch: int
    """Number of the batch in that part."""


class TextCorpus:
    """Documents of files, folders and globs, read as a build reads them.

    Large JSON Lines, text and Parquet files are split into several extents. A compressed file is
    one extent, because its parts cannot be read on their own, and so is a small file.

    Raises:
        UserError: an input cannot be read (see `find_sources`), or does not have the text field.
    """

    def __init__(self, inputs: Sequence[str], fields: Fields, chosen: PerInput = ANY_INPUT) -> None:
        self.sources = find_sources(inputs, chosen)
        check_fields(self.sources, fields)
        self._reader = Reader(self.sources, fields, BATCH_BYTES)
        self._extents: list[Extent] = []
        for item in cut_units(self.sources, fields, choose_unit_bytes(self.sources)):
            self._extents += [Extent(item.source)] if isinstance(item, Stream) else item.extents

    def __len__(self) -> int:
        """Number of extents."""
        return len(self._extents)

    @property
    def identity(self) -> dict[str, Any]:
        """Numbers and a digest that identify the sources."""
        digest = xxhash.xxh3_128()
        for source in self.sources:
            entry = (source.name, source.num_bytes, source.version, source.format)
            own = (source.text_field,) if source.text_field else ()
            digest.update(repr((*entry, *own)).encode())
        return {
            "files": len(self.sources),
            "bytes": sum(source.num_bytes for source in self.sources),
            "names, sizes and times": digest.hexdigest(),
        }

    def read(self, start: BatchPlace) -> Iterator[tuple[BatchPlace, DocumentBatch]]:
        """Yield batches from a place on, to the end of the sources.

        Raises:
            DataError: a source is damaged.
            StorageError: a source is missing or cannot be read.
            InputChangedError: a source has changed.
        """
        for extent in range(start.extent, len(self._extents)):
            first = start.batch if extent == start.extent else 0
            for number, batch in enumerate(self._reader.read(self._extents[extent])):
                if number >= first:
                    yield BatchPlace(extent, number), batch


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a document that is in one row."""

    ids: npt.NDArray[np.integer]
    """Its tokens, and the next token if the document continues."""
    length: int
    """Number of tokens, not counting the next one."""


class DocumentEncoder:
    """Encodes texts with prefix and EOS. Ids depend on the seed, the epoch and the document."""

    def __init__(self, sampler: SubwordSampler, boundary: BoundaryTokens, seed: int) -> None:
        self._sampler, self._boundary, self._seed = sampler, boundary, seed
        self.dtype = token_dtype(sampler.reference.largest_id)

    def encode(self, texts: Sequence[str], epoch: int, first: int) -> tuple[Ids, Int64Array]:
        """Return the ids of consecutive documents of an epoch, and their offsets, shape (n + 1,).

        A document without tokens gets neither prefix nor EOS.
        """
        keys = document_keys(self._seed, epoch, np.arange(first, first + len(texts)))
        tokens = self._sampler.encode(texts, keys)
        boundary = self._boundary
        ids, enclosed = enclose_documents(
            tokens.without_empty(), boundary.prefix, (boundary.eos_id,), self.dtype
        )
        lengths = np.zeros(len(texts), np.int64)
        lengths[tokens.lengths > 0] = enclosed
        return ids, offsets_from_lengths(lengths)


class PieceStore:
    """The tokens of packed pieces whose rows have not been returned yet."""

    def __init__(self) -> None:
        self._pieces: dict[Key, Piece] = {}

    def add(self, keys: Iterable[Key], first: int, ids: Ids, offsets: Int64Array) -> None:
        """Add pieces of the documents from number `first` on, without copying."""
        for key in keys:
            number, start, length = key
            begin, end = offsets[number - first : number - first + 2].tolist()
            stop = min(begin + start + length + 1, end)
            self._pieces[key] = Piece(ids[begin + start : stop], length)

    def take(self, keys: Iterable[Key]) -> list[Piece]:
        """Remove pieces from the store and return them."""
        return [self._pieces.pop(key) for key in keys]

    def detach(self, keys: Iterable[Key]) -> None:
        """Copy pieces, so that they do not keep their whole documents in memory."""
        for key in keys:
            piece = self._pieces[key]
            self._pieces[key] = Piece(piece.ids.copy(), piece.length)

    def restore(
        self,
        keys: Sequence[Key],
        origins: Sequence[DocumentOrigin],
        documents: TextCorpus,
        encoder: DocumentEncoder,
    ) -> None:
        """Restore pieces: read and encode their documents again.

        Every extent with one of them is read, up to the last of them.

        Raises:
            UserError: the pieces do not belong to these documents.
        """
        wanted: dict[BatchPlace, list[DocumentOrigin]] = {}
        for origin in origins:
            wanted.setdefault(BatchPlace(origin.extent, origin.batch), []).append(origin)
        of_document: dict[int, list[Key]] = {}
        for key in keys:
            of_document.setdefault(key[0], []).append(key)
        if of_document.keys() != {origin.number for origin in origins}:
            raise UserError("not the state of a text stream", why="its lists are inconsistent")
        for extent in sorted({place.extent for place in wanted}):
            last = max(place for place in wanted if place.extent == extent)
            for place, batch in documents.read(BatchPlace(extent, 0)):
                if place > last:
                    break
                for origin in wanted.pop(place, ()):
                    text = batch.texts[origin.index : origin.index + 1]
                    ids, offsets = encoder.encode(text, origin.epoch, origin.ordinal)
                    pieces = of_document[origin.number]
                    if max(start + length for _, start, length in pieces) > len(ids):
                        raise _changed(f"document {origin.index} of batch {place.batch} is shorter")
                    self.add(pieces, origin.number, ids, offsets)
                    self.detach(pieces)
        if wanted:
            raise _changed(f"batch {min(wanted).batch} does not exist")


def _changed(why: str) -> InputChangedError:
    hint = "restore the files, or start again without the state"
    return InputChangedError("the sources changed since the state was saved", why=why, hint=hint)


@dataclass(frozen=True, slots=True)
class RowShape:
    """Assembles rows of one length from pieces."""

    row_length: int
    labels: Labels
    pad_id: int
    dtype: np.dtype[np.integer]
    """Dtype of the pieces' tokens."""

    def rows(self, sequences: Sequence[Sequence[Piece]]) -> Rows:
        """Return a row for each sequence of pieces; without pieces, it is all padding."""
        shape = (len(sequences), self.row_length)
        ids, labels = np.empty(shape, np.int64), np.empty(shape, np.int64)
        flags = np.empty(shape, np.uint8)
        pieces = [piece for parts in sequences for piece in parts]
        like = np.empty(0, self.dtype)
        tokens = np.concatenate([like, *(piece.ids for piece in pieces)])
        lengths = np.array([len(piece.ids) for piece in pieces], np.int64)
        segments = np.zeros((5, len(pieces)), np.int64)
        segments[0] = np.repeat(np.arange(len(sequences)), [len(parts) for parts in sequences])
        segments[4] = [piece.length for piece in pieces]
        found = np.stack([lengths, offsets_from_lengths(lengths)[:-1]])
        table = np.array([[tokens.ctypes.data, 0, len(tokens), 0]])
        is_next = self.labels == "next"
        rules = Rules(NO_TOKENS, NO_TOKENS, self.pad_id, next_labels=is_next)
        problem, _ = assemble((ids, labels, flags), segments, found, table, like, rules)
        if problem:
            raise InternalError("the packer put more tokens into a row than fit")
        return Rows(ids, labels, flags, not is_next)

"""Encode the documents of a text stream, and keep their pieces until their rows are complete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import InputChangedError, UserError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import enclose_documents, offsets_from_lengths
from tokenmill.encode.boundary_policy import BoundaryTokens
from tokenmill.encode.subword.sampler import SubwordSampler
from tokenmill.kernels.permutation import document_keys
from tokenmill.load.text.corpus import BatchPlace, TextCorpus
from tokenmill.load.text.rows import Piece
from tokenmill.load.text.state import DocumentOrigin
from tokenmill.store.layout import token_dtype

Ids = npt.NDArray[np.integer]
Key = tuple[int, int, int]
"""Document number, first token and length of a piece."""


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
            tokens.without_empty(), boundary.prefix, boundary.eos_id, self.dtype
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

"""The decoded text of documents, shard by shard, in blocks of a few megabytes.

    ids     [BOS the quick EOS] [BOS brown ...]
    data    "the quickbrown ..."   offsets [0 9 ...]

The text of a document is what the reference decodes from its tokens without special ones. Boundary
tokens are no text.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator
from mmap import MADV_DONTNEED, mmap
from typing import NamedTuple, cast

import numpy as np

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import BoolArray, Int64Array, UInt8Array
from tokenmill.encode.token_texts import special_ids, token_texts
from tokenmill.kernels.interpreted import for_steps
from tokenmill.kernels.texts import NO_TEXT, TokenTexts, write_texts
from tokenmill.store.canonical import RESTORE
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.selecting.places import Place
from tokenmill.store.stored_reference import decode_stored, open_reference, stored_tokenizer

BLOCK_BYTES = 1 << 22
TRIED_DOCUMENTS, TRIED_TOKENS = 64, 1 << 12
"""Documents of a dataset that are also decoded by the reference, and the most tokens of each."""


class TextBlock(NamedTuple):
    """The text of consecutive chosen documents of a shard."""

    documents: Int64Array
    """Shape (n,): their indices in the shard."""
    data: UInt8Array
    """Their text in UTF-8. It is overwritten when the next block is made."""
    offsets: Int64Array
    """Shape (n + 1,): document i is `data[offsets[i]:offsets[i + 1]]`."""


class Texts:
    """Decodes documents of datasets that share a tokenizer.

    Args:
        dataset: one of the datasets.
        tokenizer: the tokenizer, if the datasets were built with one written in Python.

    Raises:
        UserError: the Python tokenizer is missing or differs.
        VerificationError: the stored tokenizer is not the one that encoded the dataset.
    """

    def __init__(self, dataset: Dataset, tokenizer: object = None) -> None:
        self.reference = open_reference(dataset, tokenizer)
        self._head = len(dataset.manifest.tokenizer.prefix_ids)
        self._silent = np.array(sorted(special_ids(self.reference)), np.int64)
        self.table = token_texts(stored_tokenizer(dataset), self.reference)
        if self.table is not None and not self._agrees(dataset):
            self.table = None

    @property
    def is_slow(self) -> bool:
        """Whether the reference decodes each document, because its decoder is not a known one."""
        return self.table is None

    def blocks(self, place: Place, chosen: BoolArray) -> Iterator[TextBlock]:
        """Yield the text of the chosen documents of a shard, shape (num_documents,), in order.

        Memory holds a block, or the text of the longest document, a few times.

        Raises:
            VerificationError: a token is not in the vocabulary.
        """
        documents = np.flatnonzero(chosen)
        if self.table is None:
            yield from self._decoded(place.shard, documents)
        else:
            yield from self._written(place.shard, documents, self.edges(place.shard, documents))

    def edges(self, shard: Shard, documents: Int64Array) -> Int64Array:
        """Return the first token of documents without boundary tokens, and one past the last.

        Shape (n, 2), as indices in the shard.
        """
        starts, stops = shard.offsets[documents] + self._head, shard.offsets[documents + 1] - 1
        return np.stack([np.minimum(starts, stops), stops], axis=1)

    def decoded(self, shard: Shard, document: int, most_tokens: int | None = None) -> bytes:
        """Return the text of a document as the reference decodes it."""
        start, stop = self.edges(shard, np.array([document]))[0].tolist()
        return self.decoded_ids(np.asarray(shard.ids[start:stop][:most_tokens], np.int64))

    def decoded_ids(self, ids: Int64Array) -> bytes:
        """Return the text of some ids as the reference decodes them, without special tokens."""
        kept = ids[~np.isin(ids, self._silent)]
        return decode_stored(self.reference, kept.tolist()).encode(errors="replace")

    def tokens(self, shard: Shard, document: int, spans: Int64Array) -> Int64Array:
        """Return the tokens that parts of a document's text are made of, shape (n, 2).

        `spans` are bytes [start, stop) of its text, shape (n, 2). Tokens count from the document's
        first, boundary tokens included.
        """
        start, stop = self.edges(shard, np.array([document]))[0].tolist()
        ids = np.asarray(shard.ids[start:stop], np.int64)
        if self.table is not None:
            sizes = self.table.sizes[ids].clip(0)
            with_text = np.flatnonzero(self.table.sizes[ids] != NO_TEXT)[:1]
            sizes[with_text] = self.table.sizes[ids[with_text] + len(self.table.sizes) // 2]
            ends = np.cumsum(sizes)
            firsts = np.searchsorted(ends, spans[:, 0], side="right")
            lasts = np.searchsorted(ends, spans[:, 1])
            return np.stack([firsts, lasts + 1], axis=1) + self._head

        @functools.cache
        def size(count: int) -> int:
            """The bytes of the first tokens, without a character that is cut."""
            return len(_shown(self.decoded_ids(ids[:count])).encode())

        found = []
        for first, last in spans.tolist():
            count = bisect_left(range(len(ids)), first, key=size)
            count -= size(count) > first
            found.append((count, bisect_left(range(len(ids)), last, key=size)))
        return np.array(found) + self._head

    def _agrees(self, dataset: Dataset) -> bool:
        """Whether the table gives the text that the reference gives, on some documents."""
        shards = [shard for shard in dataset.shards if shard.num_documents]
        shards = shards[:: -(-len(shards) // TRIED_DOCUMENTS) or 1]
        for shard in shards:
            each = max(TRIED_DOCUMENTS // len(shards), 1)
            documents = shard.chosen[:: -(-len(shard.chosen) // each)]
            edges = self.edges(shard, documents)
            edges[:, 1] = np.minimum(edges[:, 1], edges[:, 0] + TRIED_TOKENS)
            for block in self._written(shard, documents, edges):
                for i, document in enumerate(block.documents.tolist()):
                    ours = block.data[block.offsets[i] : block.offsets[i + 1]].tobytes()
                    if _shown(ours) != _shown(self.decoded(shard, document, TRIED_TOKENS)):
                        return False
            shard.release()
        return True

    def _written(
        self, shard: Shard, documents: Int64Array, edges: Int64Array
    ) -> Iterator[TextBlock]:
        """Yield the text of documents, written from the table."""
        table = cast("TokenTexts", self.table)
        write = for_steps(write_texts, int((edges[:, 1] - edges[:, 0]).sum()))
        slack = table.slack
        out, ends = np.empty(BLOCK_BYTES + slack, np.uint8), np.empty(len(documents), np.int64)
        first = 0
        while first < len(documents):
            count, unknown = write(np.asarray(shard.ids), edges[first:], table, slack, out, ends)
            if unknown >= 0:
                raise VerificationError(
                    "cannot decode token ids of the dataset",
                    where=str(shard.path("bin")),
                    why=f"the vocabulary has no token {shard.ids[unknown]}",
                    hint=RESTORE,
                )
            if not count:  # a long document
                out = np.empty(2 * len(out), np.uint8)
                continue
            offsets = np.append(0, ends[:count])
            yield TextBlock(documents[first : first + count], out[: offsets[-1]], offsets)
            first += count
            cast("mmap", shard.ids.base).madvise(MADV_DONTNEED)

    def _decoded(self, shard: Shard, documents: Int64Array) -> Iterator[TextBlock]:
        """Yield the text of documents, decoded by the reference, each in a block of its own."""
        for document in documents.tolist():
            text = self.decoded(shard, document)
            data = np.frombuffer(text, np.uint8)
            yield TextBlock(np.array([document]), data, np.array([0, len(text)]))


def _shown(text: bytes) -> str:
    """Text without a cut character at its end: libraries differ in how they show its bytes."""
    return text.decode(errors="replace").rstrip("\ufffd")

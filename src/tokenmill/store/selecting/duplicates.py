"""Find documents with equal token ids, exactly.

A key of each document has the first bits of a hash of its tokens, then its number. Sorted, equal
documents are neighbours, the first one first. Those with equal bits of the hash are compared token
by token, so the hash decides nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from tokenmill.core.records import Advance, BoolArray, Int64Array, UInt64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.byte_strings import tags_of
from tokenmill.kernels.equal_documents import OUTSIDE, equal_documents
from tokenmill.store.file_map import FileMap
from tokenmill.store.layout import HEADER, contradiction, index_bytes
from tokenmill.store.selecting.places import Place

KEYS_AT_ONCE = 1 << 22
PAIRS_AT_ONCE = 1 << 13
"""Pairs compared before their memory is given back: each may touch two times 64 KiB."""
MOST_MAPPED = 1 << 14
"""Shards mapped at once; Linux allows a process about four times as many maps."""


class Duplicates:
    """The keys of the documents of several shards."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        counts = [place.shard.entry.documents for place in places]
        self._first_documents = offsets_from_lengths(counts)
        num_documents = int(self._first_documents[-1])
        self._number_bits = np.uint64(max(num_documents - 1, 1).bit_length())
        self._keys = np.empty(num_documents, np.uint64)
        self._count = 0
        # A random basis, so that no documents can be crafted that all have the same hash.
        self._basis = np.uint64(int.from_bytes(os.urandom(8)))

    def add(self, place: Place, chosen: BoolArray) -> None:
        """Add the chosen documents of a shard; `chosen` has shape (num_documents,)."""
        documents = np.flatnonzero(chosen)
        if not len(documents):
            return
        shard, bits = place.shard, self._number_bits
        data = np.asarray(shard.ids).view(np.uint8)
        edges = shard.offsets * shard.ids.itemsize
        hashes = tags_of(data, edges, self._basis)[documents] << np.uint64(32)
        numbers = (documents + place.documents.start).astype(np.uint64)
        stop = self._count + len(documents)
        self._keys[self._count : stop] = hashes >> bits << bits | numbers
        self._count = stop

    def drop_from(self, chosen: BoolArray, advance: Advance) -> tuple[int, int]:
        """Clear all but the first of equal documents; return how many, and their tokens.

        `chosen` has shape (num_documents,), over all shards.
        """
        keys = self._keys[: self._count]
        keys.sort()
        dropped = tokens = 0
        pairs = _Pairs(self._places, self._first_documents)
        for done, part in self._parts(keys):
            documents, groups = self._alike(part)
            while len(documents):
                is_first = np.diff(groups, prepend=-1) != 0
                firsts = documents[is_first][np.cumsum(is_first) - 1]
                documents, firsts, groups = (
                    each[~is_first] for each in (documents, firsts, groups)
                )
                found = pairs.equal(documents, firsts)
                chosen[documents[found > 0]] = False
                dropped += int(np.count_nonzero(found))
                tokens += int(found.sum())
                documents, groups = documents[found == 0], groups[found == 0]
            advance("comparing documents", done, len(keys))
        return dropped, tokens

    def _parts(self, keys: UInt64Array) -> Iterator[tuple[int, UInt64Array]]:
        """Yield sorted keys in parts that end between two hashes, and where they end."""
        start = 0
        while start < len(keys):
            stop = min(start + KEYS_AT_ONCE, len(keys))
            last = keys[stop - 1] >> self._number_bits
            while stop < len(keys) and keys[stop] >> self._number_bits == last:
                stop += 1
            yield stop, keys[start:stop]
            start = stop

    def _alike(self, keys: UInt64Array) -> tuple[Int64Array, Int64Array]:
        """Return the documents that share a hash with another one, and numbers of the hashes."""
        hashes = keys >> self._number_bits
        same = hashes[1:] == hashes[:-1]
        is_alike = np.zeros(len(keys), np.bool_)
        is_alike[1:] = same
        is_alike[:-1] |= same
        groups = np.cumsum(np.append(True, ~same))[is_alike]
        numbers = keys[is_alike] & ((np.uint64(1) << self._number_bits) - np.uint64(1))
        return numbers.astype(np.int64), groups


class _Pairs:
    """Compares documents of any shards. Maps shards when they are first needed."""

    def __init__(self, places: Sequence[Place], first_documents: Int64Array) -> None:
        self._places, self._first_documents = places, first_documents
        self._table = np.zeros((len(places), 4), np.int64)
        self._maps: dict[int, tuple[FileMap, FileMap]] = {}

    def equal(self, documents: Int64Array, others: Int64Array) -> Int64Array:
        """Return the tokens of each document that equals its other one, else 0; shape (n,)."""
        result = np.empty(len(documents), np.int64)
        order = np.argsort(documents)  # reads the files in order
        for start in range(0, len(order), PAIRS_AT_ONCE):
            pairs = order[start : start + PAIRS_AT_ONCE]
            one, other = self._located(documents[pairs]), self._located(others[pairs])
            used = np.union1d(one[0], other[0]).tolist()
            self._map(used)
            itemsize = self._places[0].dataset.token_dtype.itemsize
            result[pairs] = found = equal_documents(self._table, one, other, itemsize)
            if (found == OUTSIDE).any():
                shard = self._places[int(one[0][found == OUTSIDE][0])].shard
                raise contradiction(str(shard.path("idx")))
            for number in used:
                for each in self._maps[number]:
                    each.forget()
        return result

    def _located(self, documents: Int64Array) -> Int64Array:
        """Return the shards of documents and their indices in them, shape (2, n)."""
        shards = np.searchsorted(self._first_documents, documents, side="right") - 1
        return np.stack([shards, documents - self._first_documents[shards]])

    def _map(self, shards: Sequence[int]) -> None:
        if len(self._maps) + len(shards) > MOST_MAPPED:
            self._maps.clear()
        for number in shards:
            if number in self._maps:
                continue
            place = self._places[number]
            num_documents = place.shard.entry.documents
            num_bytes = place.shard.entry.tokens * place.dataset.token_dtype.itemsize
            tokens = FileMap(place.shard.path("bin"), num_bytes)
            index = FileMap(place.shard.path("idx"), index_bytes(num_documents))
            self._maps[number] = tokens, index
            row = (tokens.address, index.address + HEADER.size, num_bytes, num_documents)
            self._table[number] = row

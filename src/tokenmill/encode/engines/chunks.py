"""Engines that cache the ids of chunks of text: memo, and the base of native.

    texts ─find─▶ the ids of known chunks, and the unknown chunks
    unknown chunks ─(an encoder)─▶ their ids ─finish─▶ the table, and the ids of the texts in order

Real text repeats itself: after some megabytes, most chunks cost only a lookup. A batch is processed
in rounds that are small enough for the processor's cache.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from tokenmill.core.installed import installed_version
from tokenmill.core.records import (
    BoolArray,
    Int64Array,
    TokenBatch,
    UInt8Array,
    UInt32Array,
    UInt64Array,
)
from tokenmill.encode.boundaries import offsets_from_lengths, with_documents
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.cuts import make_cuts
from tokenmill.kernels import chunks as s
from tokenmill.kernels.byte_strings import grown
from tokenmill.kernels.chunks import BLOCK_ROOM, DOCUMENT, PADDING, Cuts, complete, keep_ids, rehash

MIN_SLOTS = 1 << 16
"""Must be at least 1024, so that a sixth of the slots is more than a block has chunks."""
IDS_A_ROUND, ASKED_A_ROUND, PENDING_A_ROUND = 1 << 18, 1 << 15, 1 << 16
_CACHE_LINE = 64

_NOTHING = TokenBatch(np.empty(0, np.uint32), np.zeros(1, np.int64))


class Round(NamedTuple):
    """The results of `find` for a part of a batch, valid until the next round.

    For `asked`, `pending` and `known`, see `slots.Output`.
    """

    first_document: int
    """The documents before it are complete."""
    state: Int64Array
    """The state of `slots.find_ids`: `DOCUMENT` is the first document that is not complete yet."""
    ids: UInt32Array
    """Shape (num_known,): the ids of known chunks, in order."""
    asked: Int64Array
    """Shape (num_asked, 3): start, stop and slot of unknown chunks."""
    pending: Int64Array
    """Shape (num_pending, 2): known ids before a chunk, and its index in `asked`."""
    known: Int64Array
    """Shape (num_completed, 2): known ids and pending chunks before the end of each document."""


class ChunkTable:
    """A table of chunks; when its entries exceed `max_bytes`, it drops them all."""

    def __init__(self, cuts: Cuts, max_bytes: int) -> None:
        self._cuts = cuts
        self._max_bytes = max_bytes
        # Random secrets, so that nobody can craft a text with chunks that all hash to one slot.
        low, high = np.frombuffer(os.urandom(16), np.uint64)
        self._secrets = (low, high)
        self._block = s.Block(
            np.empty(BLOCK_ROOM + 1, np.int64),
            np.empty(BLOCK_ROOM, np.int64),
            np.empty((BLOCK_ROOM, 3), np.uint64),
        )
        self._ids = np.empty(IDS_A_ROUND, np.uint32)
        self._asked = np.empty((ASKED_A_ROUND, 3), np.int64)
        self._pending = np.empty((PENDING_A_ROUND, 2), np.int64)
        self.forget()

    def forget(self) -> None:
        """Drop all entries."""
        self._count = self._num_rest = 0
        rest = np.empty(MIN_SLOTS, np.uint64)
        self._entries = s.Entries(_empty_slots(MIN_SLOTS), rest, self._secrets)

    @property
    def num_bytes(self) -> int:
        """The memory of all entries, in bytes."""
        return self._entries.slots.nbytes + self._entries.rest.nbytes

    def find(self, data: UInt8Array, offsets: Int64Array, after: Round | None) -> Round:
        """Cut documents in UTF-8 into chunks, from where the last round ended, and look them up.

        `data` must have `slots.PADDING` bytes after the last document. Call `finish` next.
        """
        if len(data) < offsets[-1] + s.PADDING:
            raise ValueError("no padding after the last document")
        state = np.zeros(6, np.int64)
        if after is not None:
            state[:2] = after.state[:2]
        document = int(state[s.DOCUMENT])
        room = self._make_room()
        known = np.empty((len(offsets), 2), np.int64)
        output = s.Output(state, self._ids, self._asked, self._pending, known)
        s.find_ids(data, offsets, self._cuts, self._entries, room, self._block, output)
        self._count += int(state[s.NUM_NEW])
        return Round(
            document,
            state,
            self._ids[: state[s.NUM_IDS]],
            self._asked[: state[s.NUM_ASKED]],
            self._pending[: state[s.NUM_PENDING]],
            known[document + 1 : state[s.DOCUMENT] + 1],
        )

    def finish(
        self, data: UInt8Array, found: Round, asked: TokenBatch
    ) -> tuple[UInt32Array, Int64Array]:
        """Store the ids of the requested chunks.

        Returns:
            All ids of the round in order, and how many of them come before the end of each
            document completed in this round.
        """
        num_bytes = int((found.asked[:, 1] - found.asked[:, 0]).sum())
        num_words = num_bytes // 8 + len(asked.ids) + 2 * len(found.asked)
        rest = grown(self._entries.rest, self._num_rest + num_words)
        self._entries = self._entries._replace(rest=rest)
        self._num_rest = keep_ids(
            data, self._entries, self._num_rest, found.asked, asked.ids, asked.offsets
        )
        before = np.zeros(len(found.pending) + 1, np.int64)
        np.cumsum(asked.lengths[found.pending[:, 1]], out=before[1:])
        ids = np.empty(len(found.ids) + int(before[-1]), np.uint32)
        complete(found.ids, found.pending, asked.ids, asked.offsets, ids)
        return ids, found.known[:, 0] + before[found.known[:, 1]]

    def _make_room(self) -> int:
        """Grow or drop the table if needed; return how many entries can be added."""
        entries = self._entries
        num_slots = len(entries.slots) // s.SLOT_WORDS
        if self.num_bytes > self._max_bytes and self._count:
            self.forget()
        elif 2 * self._count > num_slots:
            larger = _empty_slots(2 * num_slots)
            if larger.nbytes + entries.rest.nbytes > self._max_bytes:
                self.forget()
            else:
                rehash(entries.slots, larger)
                self._entries = entries._replace(slots=larger)
        return 2 * len(self._entries.slots) // s.SLOT_WORDS // 3 + 1 - self._count


def _empty_slots(number: int) -> UInt64Array:
    """Return empty slots, shape (number * 4,), aligned so that none spans two cache lines."""
    made = np.zeros(number * s.SLOT_WORDS + 8, np.uint64)
    first = -made.ctypes.data % _CACHE_LINE // made.itemsize
    return made[first : first + number * s.SLOT_WORDS]


class ChunkEngine(ABC):
    """A chunk table in front of `_encode_chunks`; it is dropped when it grows too large."""

    def __init__(self, name: str, version: str, cuts: Cuts, cache_bytes: int) -> None:
        self.name = name
        self.version = version
        self._table = ChunkTable(cuts, cache_bytes)

    @abstractmethod
    def _encode_chunks(self, data: UInt8Array, places: Int64Array) -> TokenBatch:
        """Return the ids of every chunk: `data[start:stop]`, valid UTF-8, for each row of `places`.

        There is at least one chunk, and `data` has `slots.PADDING` bytes after the last one.
        """

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of every text, in order."""
        encoded = [text.encode() for text in texts]
        data = np.frombuffer(b"".join([*encoded, bytes(PADDING)]), np.uint8)
        offsets = offsets_from_lengths([len(part) for part in encoded])
        try:
            return self._encode(data, offsets)
        except BaseException:
            self._table.forget()  # it may contain entries without ids
            raise

    def _encode(self, data: UInt8Array, offsets: Int64Array) -> TokenBatch:
        found = None
        parts, ends = [np.empty(0, np.uint32)], [np.zeros(1, np.int64)]
        num_ids = 0
        while found is None or found.state[DOCUMENT] < len(offsets) - 1:
            found = self._table.find(data, offsets, found)
            # A slice of one row is contiguous, others are not: kernels would compile for both.
            places = np.ascontiguousarray(found.asked[:, :2])
            asked = self._encode_chunks(data, places) if len(places) else _NOTHING
            ids, stops = self._table.finish(data, found, asked)
            parts.append(ids)
            ends.append(stops + num_ids)
            num_ids += len(ids)
        ids = parts[1] if len(parts) == 2 else np.concatenate(parts)
        return TokenBatch(ids, np.concatenate(ends))


class MemoEngine(ChunkEngine):
    """memo: the reference with a cache of its ids by chunk of text."""

    def __init__(
        self, reference: Engine, tokenizer_json: bytes, control_tokens: bool, cache_bytes: int
    ) -> None:
        cuts = make_cuts(msgspec.json.decode(tokenizer_json), control_tokens)
        super().__init__("memo", reference.version, cuts, cache_bytes)
        self._reference = reference

    def _encode_chunks(self, data: UInt8Array, places: Int64Array) -> TokenBatch:
        return _by_reference(self._reference, data, places)


def _by_reference(reference: Engine, data: UInt8Array, places: Int64Array) -> TokenBatch:
    text = data.tobytes()
    return reference.encode([text[a:b].decode() for a, b in places.tolist()])


class NativeModel(Protocol):
    """Runs all steps of a tokenizer on chunks of text, in compiled code.

    It leaves out chunks that it may not encode exactly, such as those with composing characters or
    added tokens. There are few of them, so exactness costs little.
    """

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """Encode the chunks `data[start:stop]`, for each row of `places`.

        Returns:
            The ids of every chunk, and which chunks are left to the reference, shape (num_chunks,).
            Those have no ids here.
        """


class NativeEngine(ChunkEngine):
    """A compiled model with a table of chunks; the reference is loaded on first use."""

    def __init__(
        self,
        model: NativeModel,
        cuts: Cuts,
        load_reference: Callable[[], Engine],
        cache_bytes: int,
    ) -> None:
        super().__init__("native", installed_version("tokenmill"), cuts, cache_bytes)
        self._model, self._load_reference = model, load_reference
        self._reference: Engine | None = None

    def _encode_chunks(self, data: UInt8Array, places: Int64Array) -> TokenBatch:
        tokens, left_out = self._model.encode_chunks(data, places)
        if not left_out.any():
            return tokens
        self._reference = self._reference or self._load_reference()
        exact = _by_reference(self._reference, data, places[left_out])
        return with_documents(tokens, np.flatnonzero(left_out).tolist(), exact)

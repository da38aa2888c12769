"""Pack an endless stream by best fit into a bounded number of open sequences.

Every piece goes into the fullest open sequence that has room for it. If none has room, a new
sequence is opened; at the bound, the fullest one is completed first. The sequences do not depend on
how the pieces are divided into portions.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, Int64Array, Segments, Sequences
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.interpreted import for_steps
from tokenmill.pack.rooms import Bitmap, clear, next_room, put
from tokenmill.pack.strategy import Pieces

STATE_VERSION = 1


Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Numbers = list[Number]


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    sequence_length: int
    max_segments: int
    open_sequences: int
    num_opened: Number
    open: tuple[Numbers, Numbers, Numbers]
    segments: tuple[Numbers, Numbers, Numbers, Numbers]


class StreamPacker:
    """Packs pieces as they arrive, without knowing all of them.

    Its state is a small dictionary from which packing resumes exactly. Document numbers can be
    int64, because a stream can be longer than a window.
    """

    def __init__(
        self, sequence_length: int, *, open_sequences: int = 1024, max_segments: int | None = None
    ) -> None:
        most_segments = sequence_length if max_segments is None else max_segments
        if min(sequence_length, open_sequences, most_segments) < 1:
            why = f"got {sequence_length}, {open_sequences}, {max_segments}"
            raise UserError(
                "sequence_length, open_sequences and max_segments are 1 or more", why=why
            )
        self._length = sequence_length
        self._limit = min(most_segments, sequence_length)
        self._most = open_sequences
        self._num_opened = 0
        empty = np.empty(0, np.int64)
        # Open sequences. Those with the same room are in reverse order of use.
        self._open: tuple[Int64Array, Int64Array, Int64Array] = (empty, empty, empty)
        self._segments = Segments(empty, empty, empty)  # type: ignore[arg-type]
        self._sequence_of = empty

    def push(self, pieces: Pieces) -> Sequences:
        """Add pieces and return the sequences that they complete, in order of completion.

        Raises:
            UserError: a piece is longer than a sequence, or empty.
        """
        if len(pieces) and int(pieces.sizes.max()) > self._length:
            why = f"it takes {int(pieces.sizes.max())} tokens of {self._length}"
            raise UserError("a piece is longer than a sequence", why=why, hint="cut it first")
        if len(pieces) and int(pieces.sizes.min()) < 1:
            raise UserError("a piece has no tokens", why=f"its size is {int(pieces.sizes.min())}")
        assign = for_steps(_assign, len(pieces) + self._length // 16)
        sequence_of, closed, *opened = assign(
            pieces.sizes, self._open, self._num_opened, (self._length, self._limit, self._most)
        )
        self._open = (opened[0], opened[1], opened[2])
        if len(sequence_of):
            self._num_opened = max(self._num_opened, int(sequence_of.max()) + 1)
        self._segments = Segments.joined([self._segments, pieces.segments])
        self._sequence_of = np.concatenate([self._sequence_of, sequence_of])
        return self._give_out(closed)

    def finish(self) -> Sequences:
        """Return all open sequences, oldest first. The packer is empty afterwards."""
        closed = np.sort(self._open[0])
        self._open = (closed[:0], closed[:0], closed[:0])
        return self._give_out(closed)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the packer, as numbers and lists of numbers."""
        segments = self._segments
        return {
            "version": STATE_VERSION,
            "sequence_length": self._length,
            "max_segments": self._limit,
            "open_sequences": self._most,
            "num_opened": self._num_opened,
            "open": [values.tolist() for values in self._open],
            "segments": [
                values.tolist()
                for values in (
                    segments.documents,
                    segments.starts,
                    segments.lengths,
                    self._sequence_of,
                )
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state.

        Raises:
            UserError: the state comes from a packer with other settings or of another version.
        """
        try:
            found = msgspec.convert(state, _State)
        except msgspec.ValidationError as error:
            raise UserError("not the state of a packer", why=str(error)) from error
        own = self.state_dict()
        for name in ("version", "sequence_length", "max_segments", "open_sequences"):
            if getattr(found, name) != own[name]:
                why = f"{name} is {getattr(found, name)!r} in the state and {own[name]!r} here"
                raise UserError("the state belongs to another packer", why=why)
        first, second, third = (np.array(values, np.int64) for values in found.open)
        *segments, sequence_of = (np.array(values, np.int64) for values in found.segments)
        lengths = {len(first), len(second), len(third)}, {len(each) for each in segments}
        sound = (
            lengths == ({len(first)}, {len(sequence_of)})
            and len(first) <= self._most
            and bool(((second > 0) & (second < self._length)).all())
            and set(sequence_of.tolist()) == set(first.tolist())
            and max(first.tolist(), default=-1) < found.num_opened
        )
        if not sound:
            raise UserError("not the state of a packer", why="its lists are inconsistent")
        self._num_opened = found.num_opened
        self._open = (first, second, third)
        self._segments = Segments(*segments)  # type: ignore[arg-type]
        self._sequence_of = sequence_of

    def _give_out(self, closed: Int64Array) -> Sequences:
        """Remove closed sequences from the packer and return them."""
        by_number = np.argsort(closed)
        found = np.searchsorted(closed, self._sequence_of, sorter=by_number)
        place = np.append(by_number, len(closed))[found]
        is_closed = np.append(closed, -1)[place] == self._sequence_of
        places = np.where(is_closed, place, len(closed))
        order = np.argsort(places, kind="stable")
        counts = np.bincount(places, minlength=len(closed) + 1)[: len(closed)]
        offsets = offsets_from_lengths(counts)
        given, kept = order[: offsets[-1]], np.sort(order[offsets[-1] :])
        result = Sequences(self._segments.take(given), offsets)
        self._segments = self._segments.take(kept)
        self._sequence_of = self._sequence_of[kept]
        return result


@compiled
def _assign(
    sizes: Int32Array,
    opened: tuple[Int64Array, Int64Array, Int64Array],
    num_opened: int,
    limits: tuple[int, int, int],
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
    """Return each piece's sequence, closed sequences, and the rooms and segments of open ones."""
    open_sequences, open_rooms, open_segments = opened
    length, max_segments, most_open = limits
    sequence = np.empty(most_open, np.int64)
    segments = np.zeros(most_open, np.int64)
    for i in range(len(open_sequences)):
        sequence[i], segments[i] = open_sequences[i], open_segments[i]
    below, top, words, groups = _stacked(open_rooms, length, most_open)
    free = np.arange(most_open)
    num_open = len(open_sequences)
    sequence_of = np.empty(len(sizes), np.int64)
    closed = np.empty(len(sizes) + num_open, np.int64)
    num_closed = 0
    for piece in range(len(sizes)):
        if sizes[piece] == length or max_segments == 1:  # full at once, so it needs no slot
            sequence_of[piece] = closed[num_closed] = num_opened
            num_opened += 1
            num_closed += 1
            continue
        room = next_room(words, groups, sizes[piece])
        is_new = room < 0
        if is_new and num_open == most_open:
            room = next_room(words, groups, 0)  # close the fullest one
        if room >= 0:
            slot = top[room]
            top[room] = below[slot]
            if top[room] < 0:
                clear(words, groups, room)
        if is_new:
            if num_open == most_open:
                closed[num_closed] = sequence[slot]
                num_closed += 1
            else:
                slot = free[num_open]
                num_open += 1
            sequence[slot], segments[slot], room = num_opened, 0, length
            num_opened += 1
        sequence_of[piece] = sequence[slot]
        segments[slot] += 1
        room -= sizes[piece]
        if room == 0 or segments[slot] == max_segments:
            closed[num_closed] = sequence[slot]
            num_closed += 1
            num_open -= 1
            free[num_open] = slot
        else:
            put(words, groups, room)
            below[slot] = top[room]
            top[room] = slot
    slots, rooms = _unstacked(below, top, num_open)
    return sequence_of, closed[:num_closed], sequence[slots], rooms, segments[slots]


@inlined
def _stacked(
    rooms: Int64Array, length: int, most_open: int
) -> tuple[Int64Array, Int64Array, Bitmap, Bitmap]:
    """Stack slots by room, the last on top. Return the slot below each, the tops, and bitmaps."""
    below = np.empty(most_open, np.int64)
    top = np.full(length + 1, -1, np.int64)
    words: Bitmap = np.zeros((length >> 6) + 1, np.uint64)
    groups: Bitmap = np.zeros((len(words) >> 6) + 1, np.uint64)
    for slot in range(len(rooms)):
        put(words, groups, rooms[slot])
        below[slot] = top[rooms[slot]]
        top[rooms[slot]] = slot
    return below, top, words, groups


@inlined
def _unstacked(below: Int64Array, top: Int64Array, num_open: int) -> tuple[Int64Array, Int64Array]:
    """Return slots and their rooms in an order from which `_stacked` builds the same stacks."""
    slots = np.empty(num_open, np.int64)
    rooms = np.empty(num_open, np.int64)
    k = num_open
    for room in range(len(top) - 1, 0, -1):
        slot = top[room]
        while slot >= 0:  # from the top of a stack down, hence from the end of the list
            k -= 1
            slots[k], rooms[k] = slot, room
            slot = below[slot]
    return slots, rooms

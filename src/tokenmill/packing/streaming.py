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
from tokenmill.core.records import Int64Array, Segments, Sequences
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.interpreted import for_steps
from tokenmill.kernels.packing import best_fit_of_open
from tokenmill.packing.options import MIN_SEQUENCE_LENGTH, TOO_SHORT
from tokenmill.packing.strategy import Pieces

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
        if sequence_length < MIN_SEQUENCE_LENGTH:
            why = f"got {sequence_length}; {TOO_SHORT}"
            raise UserError("the sequence length is too short", why=why)
        if min(open_sequences, most_segments) < 1:
            why = f"got {open_sequences} and {max_segments}"
            raise UserError("open_sequences and max_segments must be 1 or more", why=why)
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
        assign = for_steps(best_fit_of_open, len(pieces) + self._length // 16)
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

"""How the sequences of a plan become rows: what a plan says about itself, whatever packed it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from tokenmill.records import Int64Array

Labels = Annotated[
    Literal["aligned", "next"],
    Meta(description="aligned with input_ids (Hugging Face shifts), or the next token"),
]
Tokens = Annotated[int, Meta(ge=0, le=1 << 24)]
Number = Annotated[int, Meta(ge=1, le=1 << 24)]


class RowFormat(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """All that a reader needs beside the arrays of a plan."""

    sequence_lengths: Annotated[list[Number], Meta(min_length=1)]
    """Ascending, in tokens: a sequence is padded to the first of them that it fits into."""
    row_multiple: Number
    """Rows are padded from there to a multiple of this."""
    group_size: Number
    """Consecutive sequences of a window that belong into one step, and stay together."""
    most_segments: Number
    """Of any sequence."""
    segment_multiple: Number
    """Each segment is padded to a multiple of this."""
    bos_at_cuts: bool
    """A BOS stands before each segment that does not begin its document."""
    eos_at_cuts: bool
    """An EOS stands after each segment that does not end its document."""
    bos_predicts: bool
    """If labels are the next token, a BOS at a cut has one: no other segment has that token."""
    joins_ends: bool
    """Two segments of a document are its two ends, and one text."""
    overlap: Tokens
    """First tokens of a segment that repeat the last ones of the segment before."""
    overlap_in_loss: bool
    reserved: Tokens = 0
    """Places that each segment has beside its tokens; missing in plans that reserve none."""

    @property
    def length(self) -> int:
        """Most tokens of a sequence, with those set at cuts and the padding between segments."""
        return self.sequence_lengths[-1]

    @property
    def row_lengths(self) -> list[int]:
        """Tokens of a row with all its padding, for each of the lengths of sequences."""
        multiple = self.row_multiple
        return [-(-length // multiple) * multiple for length in self.sequence_lengths]

    def row_lengths_of(self, sizes: Int64Array) -> Int64Array:
        """Shape (n,): tokens of the row of each of `sizes` tokens; the longest if none fits."""
        import numpy as np  # a build imports this module before its first worker has started

        lengths: Int64Array = np.array(self.row_lengths, np.int64)
        return lengths[np.searchsorted(self.sequence_lengths[:-1], sizes)]

    def problems(self) -> Iterator[str]:
        """What is wrong with it."""
        if any(second <= first for first, second in pairwise(self.sequence_lengths)):
            yield "rows: sequence_lengths must ascend"

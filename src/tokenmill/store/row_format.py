"""How the sequences of a plan become rows, independent of the packing strategy."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from tokenmill.core.records import Int64Array

Labels = Annotated[
    Literal["aligned", "next"],
    Meta(description="aligned with input_ids (Hugging Face shifts), or the next token"),
]
Tokens = Annotated[int, Meta(ge=0, le=1 << 24)]
Number = Annotated[int, Meta(ge=1, le=1 << 24)]


class RowFormat(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Everything that a reader needs in addition to the arrays of a plan."""

    sequence_lengths: Annotated[list[Number], Meta(min_length=1)]
    """Lengths in tokens, ascending; a sequence is padded to the first length that it fits in."""
    row_multiple: Number
    """Rows are then padded to a multiple of this number of tokens."""
    group_size: Number
    """Number of consecutive sequences of a window that stay together in one step."""
    most_segments: Number
    """The largest number of segments in a sequence."""
    segment_multiple: Number
    """Each segment is padded to a multiple of this number of tokens."""
    bos_at_cuts: bool
    """Whether a BOS precedes each segment that does not start its document."""
    eos_at_cuts: bool
    """Whether an EOS follows each segment that does not end its document."""
    bos_predicts: bool
    """Whether a BOS at a cut has a label, if labels are the next token."""
    joins_ends: bool
    """Whether two segments of one document are its start and its end, joined into one text."""
    overlap: Tokens
    """Number of tokens at the start of a segment that repeat the end of the previous segment."""
    overlap_in_loss: bool
    reserved: Tokens = 0
    """Extra positions reserved for each segment; absent in plans that reserve none."""

    def __post_init__(self) -> None:
        if any(second <= first for first, second in pairwise(self.sequence_lengths)):
            raise ValueError("sequence_lengths must ascend")

    @property
    def length(self) -> int:
        """Most tokens of a sequence, including tokens added at cuts and padding of segments."""
        return self.sequence_lengths[-1]

    @property
    def row_lengths(self) -> list[int]:
        """Length in tokens of a padded row, for each sequence length."""
        multiple = self.row_multiple
        return [-(-length // multiple) * multiple for length in self.sequence_lengths]

    def row_lengths_of(self, sizes: Int64Array) -> Int64Array:
        """Return the row length for each of `sizes`, shape (n,); the longest if none fits."""
        import numpy as np  # imported late: a build loads this module before workers start

        lengths: Int64Array = np.array(self.row_lengths, np.int64)
        return lengths[np.searchsorted(self.sequence_lengths[:-1], sizes)]

"""The row format of plans of format version 1, derived from their options."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tokenmill.store.row_format import Number, RowFormat, Tokens


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options that determine rows, as version 1 wrote them."""

    sequence_length: Number
    packing: str = "best-fit"
    long_documents: str = "split"
    overlap: Tokens = 0
    overlap_in_loss: bool = False
    at_cuts: Literal["nothing", "bos", "eos", "bos-and-eos"] = "nothing"
    max_segments: Number | None = None
    segment_multiple: Number = 1
    sequence_multiple: Number = 1
    smallest_bucket: Number = 256
    ranks: Number = 8


def row_format_of(options: dict[str, Any], figures: dict[str, Any]) -> RowFormat:
    """Return the row format of a plan of version 1.

    Raises:
        ValueError: the options are not valid for a plan.
    """
    given = msgspec.convert(options, _Options)
    lengths = [given.sequence_length]
    if given.packing == "length-buckets":
        smallest = given.smallest_bucket
        lengths = [smallest << k for k in range((given.sequence_length // smallest).bit_length())]
        if lengths[-1:] != [given.sequence_length]:
            raise ValueError("sequence_length and smallest_bucket are not powers of two")
    most_segments = min(given.max_segments or given.sequence_length, given.sequence_length)
    planned = figures.get("most_segments")
    if isinstance(planned, int):
        most_segments = max(min(planned, most_segments), 1)
    return RowFormat(
        sequence_lengths=lengths,
        row_multiple=given.sequence_multiple,
        group_size=given.ranks if given.packing == "balanced" else 1,
        most_segments=most_segments,
        segment_multiple=given.segment_multiple,
        bos_at_cuts="bos" in given.at_cuts,
        eos_at_cuts="eos" in given.at_cuts,
        bos_predicts=given.long_documents == "keep-end",
        joins_ends=given.long_documents == "keep-both-ends",
        overlap=given.overlap,
        overlap_in_loss=given.overlap_in_loss,
    )

"""The options of adopting."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tokenmill.core.options import about

Boundaries = Literal["auto", "index", "eos"]


class AdoptOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of adopting: where documents end, and how files are read."""

    boundaries: Annotated[
        Boundaries,
        about(
            "where documents end: at the index or the end of a row, or after each EOS; "
            "auto: the first of these that a file has"
        ),
    ] = "auto"
    append_eos: Annotated[bool, about("append an EOS to documents that do not end with one")] = (
        False
    )
    column: Annotated[str, about("column of ids in Parquet and Arrow")] = "input_ids"
    dtype: Annotated[
        Literal["auto", "uint8", "uint16", "uint32"],
        about("of .npy, .ds and .bin files; auto: as their tools choose it for the vocabulary"),
    ] = "auto"

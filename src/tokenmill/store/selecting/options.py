"""The options of selecting. Flags and keyword arguments are built from these fields."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tokenmill.core.options import about


class SelectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which documents to keep. Without options: all of them."""

    where: Annotated[
        str | None,
        about(
            "keep documents for which this DuckDB expression is true, e.g. "
            "\"lang = 'de' and tokens > 100\"; it can use kept columns, source, subset, id, "
            "tokens, document and dataset",
            metavar="EXPRESSION",
        ),
    ] = None
    only: Annotated[
        str | None,
        about("keep the ids in this file (one a line) or view", metavar="FILE"),
    ] = None
    without: Annotated[
        str | None,
        about("leave out the ids in this file, or the view", metavar="FILE"),
    ] = None
    contains: Annotated[
        str | None,
        about(
            "keep documents that share a run of words with a text in this file, one a line: .txt, "
            "or .jsonl, where every string counts",
            metavar="FILE",
        ),
    ] = None
    without_contained: Annotated[
        str | None, about("leave out the documents that --contains keeps", metavar="FILE")
    ] = None
    words: Annotated[
        Annotated[int, Meta(ge=1, le=1000)],
        about("words of a run, without case and punctuation", metavar="N"),
    ] = 13
    dedupe: Annotated[
        Literal["exact"] | None,
        about("exact: of documents with equal token ids, keep the first"),
    ] = None
    sample: Annotated[
        Annotated[float, Meta(gt=0, le=1e15)] | None,
        about(
            "keep about this many tokens, e.g. 10M (random documents of every source, in "
            "proportion to its tokens)",
            metavar="TOKENS",
            unit="quantity",
        ),
    ] = None
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=2**63 - 1)],
        about("seed of the sample; a larger sample contains a smaller one with the same seed"),
    ] = 0

"""Fill-in-the-middle: a text is shown as its beginning and its end, and then its middle is said.

After M. Bavarian et al.: Efficient Training of Language Models to Fill in the Middle, 2022
(arXiv 2207.14255). What is cut is a segment of a row: a document, or the part of it that the row
holds ("context level" in the paper). So packing never parts a sentinel from what it belongs to.
Segments grow by up to four tokens, for which the plan has reserved places.

Whether, where and how a segment is cut follows from the seed, the source, the epoch, the sequence
and the segment: never from the order of reading, the ranks or the workers.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from tokenmill.errors import UserError
from tokenmill.load.rows.infilling import (
    HOLDS_SENTINEL,
    NO_PLACE,
    PSM,
    SPM,
    TOO_SHORT,
    WITHOUT_LOSS,
    Cutting,
    Origins,
    Sentinels,
    infilled,
)
from tokenmill.load.rows.provenance import Layout
from tokenmill.load.rows.reader import RowReader, Rows
from tokenmill.load.sentinels import find_sentinels
from tokenmill.records import Int64Array

Share = Annotated[float, Meta(ge=0, le=1)]
Token = Annotated[str, Meta(min_length=1)] | Annotated[int, Meta(ge=0, lt=2**31)] | None

LEAST_PLACES = 3
"""Places that a segment needs for three sentinels; a fourth is for what ends the middle."""
CUTS_ROWS = "a curriculum cuts them shorter, and would part sentinels from their text"
AS_STORED = "as stored"
OUTCOMES = {
    PSM: "PSM",
    SPM: "SPM",
    TOO_SHORT: "too short",
    WITHOUT_LOSS: "tokens without loss",
    HOLDS_SENTINEL: "holds a sentinel",
    NO_PLACE: "too few places",
}
"""What became of a segment that was to be cut; after the first two, why it was not."""


class FillInMiddle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of fill-in-the-middle: how often to cut a text, and the tokens that mark its parts.

    Give tokens by id, or by content if the dataset's tokenizer has them. Without any, tokenmill
    uses those of StarCoder, SantaCoder, Qwen2.5-Coder, Code Llama or DeepSeek-Coder if the
    tokenizer has them.
    """

    rate: Share = 0.5
    """Share of segments to cut. The others do not change."""
    spm_share: Share = 0.5
    """Share of cut segments in which the suffix comes first (SPM)."""
    prefix: Token = None
    middle: Token = None
    suffix: Token = None
    end: Token = None
    """Token that ends the middle, before the document's EOS. None: EOS ends it, also at a cut."""


class Infilling:
    """Fill-in-the-middle for the rows of some readers, one for each source.

    Raises:
        UserError: a plan reserves no places for sentinels, or has rows that cannot be cut, or the
            tokenizer has no such tokens.
    """

    def __init__(self, rule: FillInMiddle, readers: list[RowReader], seed: int) -> None:
        for reader in readers:
            _check_plan(reader)
        self._rule, self._seed = rule, seed
        named = (rule.prefix, rule.middle, rule.suffix, rule.end)
        self.sentinels: Sentinels = find_sentinels(readers[0].dataset, named)
        self.counts: Counter[str] = Counter()
        """What became of the segments that were counted."""

    @property
    def identity(self) -> dict[str, float | int]:
        """What batches depend on: shares and ids, as plain values."""
        shares = {"rate": self._rule.rate, "spm_share": self._rule.spm_share}
        return {**shares, **self.sentinels._asdict()}

    def apply(
        self,
        reader: RowReader,
        content: tuple[Rows, Layout],
        drawn_from: tuple[Int64Array, Int64Array, int],
    ) -> tuple[Rows, Layout]:
        """Rows of a reader with some segments cut; drawn from sequences, epochs and the source.

        Raises:
            VerificationError: segments with their reserved places do not fit into a row.
        """
        rows, layout = content
        cutting = Cutting(
            float(self._rule.rate),  # an int would be compiled for once more
            float(self._rule.spm_share),
            self.sentinels,
            reader.plan.rows.reserved,
            len(reader.dataset.manifest.tokenizer.prefix_ids),
        )
        origins = Origins(*drawn_from, self._seed)
        found = infilled((rows, layout, reader.has_no_loss(layout)), origins, reader.rules, cutting)
        if found is None:
            raise reader.damaged("a sequence is longer than its row, with the places it reserves")
        return found

    def count(self, layout: Layout) -> None:
        """Count what became of the segments of some rows."""
        bits = layout.kinds & sum(OUTCOMES)
        for kind, number in zip(*np.unique(bits, return_counts=True), strict=True):
            self.counts[outcome(int(kind))] += int(number)


def outcome(kind: int) -> str:
    """What became of a segment of a kind."""
    return next((text for bit, text in OUTCOMES.items() if kind & bit), AS_STORED)


def _check_plan(reader: RowReader) -> None:
    where, targets = str(reader.plan.folder), reader.targets
    planned = reader.plan.rows
    problem = ""
    if targets.across_documents:
        problem = "across_documents would have a document predict a sentinel of the next one"
    elif targets.without_prefix:
        problem = "without_prefix: the first tokens of a document move"
    elif reader.rules.overlap:
        problem = "tokens that windows repeat carry no loss, and they move"
    elif planned.joins_ends:
        problem = "long documents keep both ends, and are two segments of one text"
    if problem:
        raise UserError("these rows cannot be filled in the middle", where=where, why=problem)
    if planned.reserved < LEAST_PLACES:
        raise UserError(
            "the plan reserves no places for sentinels",
            where=where,
            why=f"each segment has {planned.reserved} places beside its tokens; three sentinels, "
            "and an EOS where a document is cut, need 4",
            hint="tokenmill pack --reserve 4 makes such a plan (--name gives it a name of its own)",
        )

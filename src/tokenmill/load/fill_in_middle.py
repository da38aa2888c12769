"""Fill-in-the-middle: the model sees the start and the end of a text and predicts its middle.

As in M. Bavarian et al.: Efficient Training of Language Models to Fill in the Middle, 2022
(arXiv 2207.14255). It cuts segments of a row: a document, or the part of it in the row ("context
level" in the paper). So packing never separates a sentinel from its text. A segment grows by up to
four tokens, and the plan reserves positions for them.

Whether and where a segment is cut depends only on the seed, the source, the epoch, the sequence and
the segment, not on the order of reading, the ranks or the workers.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
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

Share = Annotated[float, Meta(ge=0, le=1)]
Token = Annotated[str, Meta(min_length=1)] | Annotated[int, Meta(ge=0, lt=2**31)] | None

LEAST_PLACES = 3
"""Positions that a segment needs for three sentinels; a fourth is for the end of the middle."""
CUTS_ROWS = "the curriculum cuts rows, which would separate sentinels from their text"
AS_STORED = "as stored"
OUTCOMES = {
    PSM: "PSM",
    SPM: "SPM",
    TOO_SHORT: "too short",
    WITHOUT_LOSS: "tokens without loss",
    HOLDS_SENTINEL: "holds a sentinel",
    NO_PLACE: "too few places",
}
"""Outcomes for a segment chosen to be cut; all after the first two say why it was not."""


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
    """Applies fill-in-the-middle to the rows of readers, one for each source.

    Raises:
        UserError: a plan reserves no positions for sentinels, or its rows cannot be cut, or the
            tokenizer does not have the sentinels.
    """

    def __init__(self, rule: FillInMiddle, readers: list[RowReader], seed: int) -> None:
        for reader in readers:
            _check_plan(reader)
        self._rule, self._seed = rule, seed
        named = (rule.prefix, rule.middle, rule.suffix, rule.end)
        self.sentinels: Sentinels = find_sentinels(readers[0].dataset, named)
        self.counts: Counter[str] = Counter()
        """How many segments had each outcome."""

    @property
    def identity(self) -> dict[str, float | int]:
        """The settings that batches depend on, shares and ids, as plain values."""
        shares = {"rate": self._rule.rate, "spm_share": self._rule.spm_share}
        return {**shares, **self.sentinels._asdict()}

    def apply(
        self,
        reader: RowReader,
        content: tuple[Rows, Layout],
        drawn_from: tuple[Int64Array, Int64Array, int],
    ) -> tuple[Rows, Layout]:
        """Return the rows of a reader with some of their segments cut.

        `drawn_from` is what the random draws depend on: sequences, epochs and the source.

        Raises:
            VerificationError: segments with their reserved positions do not fit in a row.
        """
        rows, layout = content
        cutting = Cutting(
            float(self._rule.rate),  # an int would make Numba compile again
            float(self._rule.spm_share),
            self.sentinels,
            reader.plan.rows.reserved,
            len(reader.dataset.manifest.tokenizer.prefix_ids),
        )
        origins = Origins(*drawn_from, self._seed)
        found = infilled((rows, layout, reader.has_no_loss(layout)), origins, reader.rules, cutting)
        if found is None:
            raise reader.damaged("a sequence with its reserved positions is longer than its row")
        return found

    def count(self, layout: Layout) -> None:
        """Count the outcomes of the segments of these rows."""
        bits = layout.kinds & sum(OUTCOMES)
        for kind, number in zip(*np.unique(bits, return_counts=True), strict=True):
            self.counts[outcome(int(kind))] += int(number)


def outcome(kind: int) -> str:
    """Return the name of a segment's outcome."""
    return next((text for bit, text in OUTCOMES.items() if kind & bit), AS_STORED)


def _check_plan(reader: RowReader) -> None:
    where, targets = str(reader.plan.folder), reader.targets
    planned = reader.plan.rows
    problem = ""
    if targets.across_documents:
        problem = "with across_documents, a document would predict a sentinel of the next document"
    elif targets.without_prefix:
        problem = "without_prefix excludes the first tokens of a document, and they would move"
    elif reader.rules.overlap:
        problem = "tokens repeated by windows are excluded from the loss, and they would move"
    elif planned.joins_ends:
        problem = "with keep-both-ends, a long document is two segments of one text"
    if problem:
        raise UserError("cannot fill in the middle of these rows", where=where, why=problem)
    if planned.reserved < LEAST_PLACES:
        raise UserError(
            "the plan does not reserve enough positions for sentinels",
            where=where,
            why=f"it reserves {planned.reserved} for each segment; three sentinels, and an EOS if "
            "the document was cut, need 4",
            hint="make a plan with tokenmill pack --reserve 4 (--name sets its name)",
        )

"""How many documents are encoded at a time: by free memory, their lengths and the context."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.hf import source
from tokenmill.hf.columns import RowFormat
from tokenmill.hf.log import logger
from tokenmill.hf.windows import WindowRule
from tokenmill.hf.writing import MAX_WRITE_BYTES
from tokenmill.records import TokenBatch
from tokenmill.run.machine.resources import usable_memory

FIRST_BATCH_SIZE = 6000
MEMORY_SHARE = 16
"""A batch may take one part in so many of the free memory."""
TEXT_COPIES = 4
"""Of a text: in Arrow, in Python, in the engine, and those of the batch before."""
TOKEN_BYTES = 16
"""Ids of a token, four bytes each: the engine's, ours with special tokens, two batches."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Means over the documents, from a sample."""

    mean_bytes: float
    mean_tokens: float
    mean_rows: float
    form: RowFormat
    holds_rows: bool
    """Whether all rows of a batch are in memory at once."""

    @staticmethod
    def of_sample(
        mean_bytes: float, tokens: TokenBatch, rule: WindowRule, form: RowFormat, holds_rows: bool
    ) -> Documents:
        """Of the tokens of some documents, and the size of all of them."""
        lengths = tokens.lengths
        some = len(lengths) > 0
        mean_rows = max(float(rule.num_windows(lengths).mean()), 1.0) if some else 1.0
        mean_tokens = float(lengths.mean()) if some else 0.0
        return Documents(mean_bytes, mean_tokens, mean_rows, form, holds_rows)

    @property
    def row_bytes(self) -> float:
        """What the rows of a document take."""
        return self.mean_rows * self.form.context_length * max(self.form.token_bytes, 1)

    @property
    def num_bytes(self) -> float:
        """What a document takes while it is made into rows; in a batch of its own, by estimate."""
        held = 2 * self.row_bytes if self.holds_rows else 0.0
        return TEXT_COPIES * self.mean_bytes + TOKEN_BYTES * self.mean_tokens + held


def choose_batch_size(wanted: int | None, documents: Documents, *, by_memory: bool = True) -> int:
    """Documents of a batch: as asked, else at most 6000, or fewer where these are large.

    Where rows follow from batches, `by_memory` is false: rows must not depend on the machine.
    """
    if wanted is not None:
        logger.debug("batch_size=%d was asked for", wanted)
        return wanted
    free, owner = usable_memory()
    limits = {
        "text that is encoded at a time": source.MAX_TEXT_BYTES / max(documents.mean_bytes, 1.0)
    }
    if documents.holds_rows:
        limits["rows that are written at a time"] = MAX_WRITE_BYTES / documents.row_bytes
    if by_memory:
        limits["free memory"] = free / MEMORY_SHARE / max(documents.num_bytes, 1.0)
    limit = min(limits, key=limits.__getitem__)
    size = max(int(min(FIRST_BATCH_SIZE, limits[limit])), 1)
    facts = (
        f"a document has {documents.mean_bytes:.0f} bytes and makes {documents.mean_rows:.1f} rows "
        f"of {documents.form.context_length} tokens"
    )
    memory = (
        f"{free / 1e6:,.0f} MB {owner} are free, and a document takes {documents.num_bytes:.0f} "
        "bytes"
    )
    if size < FIRST_BATCH_SIZE:
        why = f"{facts}; {memory}" if limit == "free memory" else facts
        logger.info(
            "batch_size begins at %d, and is %d by %s: %s", FIRST_BATCH_SIZE, size, limit, why
        )
    logger.debug("batch_size=%d: %s; %s; %s", size, facts, memory, _told(limits))
    return size


def _told(limits: dict[str, float]) -> str:
    return ", ".join(f"at most {int(most)} by {name}" for name, most in limits.items())

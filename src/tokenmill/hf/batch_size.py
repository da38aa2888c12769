"""Choose how many documents to encode at a time, from free memory and document lengths."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.core.records import TokenBatch
from tokenmill.hf import source
from tokenmill.hf.columns import RowFormat
from tokenmill.hf.log import logger
from tokenmill.hf.windows import WindowRule
from tokenmill.hf.writing import MAX_WRITE_BYTES
from tokenmill.run.machine.resources import usable_memory

FIRST_BATCH_SIZE = 6000
MEMORY_SHARE = 16
"""A batch may take the free memory divided by this."""
TEXT_COPIES = 4
"""Copies of a text: in Arrow, in Python, in the engine, and those of the previous batch."""
TOKEN_BYTES = 16
"""Copies of an id of four bytes: the engine's, and ours with special tokens, in two batches."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Mean sizes of documents, from a sample."""

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
        """Compute means from the tokens of a sample and the size of all documents."""
        lengths = tokens.lengths
        some = len(lengths) > 0
        mean_rows = max(float(rule.num_windows(lengths).mean()), 1.0) if some else 1.0
        mean_tokens = float(lengths.mean()) if some else 0.0
        return Documents(mean_bytes, mean_tokens, mean_rows, form, holds_rows)

    @property
    def row_bytes(self) -> float:
        """Bytes that the rows of a document take."""
        return self.mean_rows * self.form.context_length * max(self.form.token_bytes, 1)

    @property
    def num_bytes(self) -> float:
        """Estimated bytes that a document takes while its rows are made."""
        held = 2 * self.row_bytes if self.holds_rows else 0.0
        return TEXT_COPIES * self.mean_bytes + TOKEN_BYTES * self.mean_tokens + held


def choose_batch_size(wanted: int | None, documents: Documents, *, by_memory: bool = True) -> int:
    """The documents per batch: as configured, else at most 6000, or fewer if they are large.

    Where rows follow from batches, `by_memory` is false: rows must not depend on the machine.
    """
    if wanted is not None:
        logger.debug("batch_size=%d is configured", wanted)
        return wanted
    free, owner = usable_memory()
    limits = {"text encoded at a time": source.MAX_TEXT_BYTES / max(documents.mean_bytes, 1.0)}
    if documents.holds_rows:
        limits["rows that are written at a time"] = MAX_WRITE_BYTES / documents.row_bytes
    if by_memory:
        limits["free memory"] = free / MEMORY_SHARE / max(documents.num_bytes, 1.0)
    limit = min(limits, key=limits.__getitem__)
    size = max(int(min(FIRST_BATCH_SIZE, limits[limit])), 1)
    facts = (
        f"a document has {documents.mean_bytes:.0f} bytes and gives {documents.mean_rows:.1f} rows "
        f"of {documents.form.context_length} tokens"
    )
    memory = (
        f"{free / 1e6:,.0f} MB {owner} are free, and a document takes {documents.num_bytes:.0f} "
        "bytes"
    )
    if size < FIRST_BATCH_SIZE:
        why = f"{facts}; {memory}" if limit == "free memory" else facts
        logger.info(
            "batch_size starts at %d, and is %d because of %s: %s",
            FIRST_BATCH_SIZE,
            size,
            limit,
            why,
        )
    logger.debug("batch_size=%d: %s; %s; %s", size, facts, memory, _told(limits))
    return size


def _told(limits: dict[str, float]) -> str:
    return ", ".join(f"at most {int(most)} by {name}" for name, most in limits.items())

"""What a run did, and how long each stage took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from tokenmill.hf.log import logger
from tokenmill.hf.source import Texts

P = ParamSpec("P")
T = TypeVar("T")

STAGES = ("read", "encode", "windows", "write")


@dataclass(slots=True)
class Summary:
    """Counts and seconds of one call of `tokenize`, over all splits."""

    documents: int = 0
    """All that were read, also those that gave no row."""
    null: int = 0
    """Documents whose text is null."""
    empty: int = 0
    """Documents without tokens."""
    text_bytes: int = 0
    """In UTF-8."""
    rows: int = 0
    tokens: int = 0
    """Tokens in rows, without padding; those of an overlap count in each row."""
    reused: list[str] = field(default_factory=list)
    """Files of an earlier run that were opened instead."""
    seconds: float = 0.0
    """Of the call; of iterable datasets, those in which rows were made in this process."""
    stage_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    """Windows and writing have a thread of their own, so these may add up to more."""
    has_warned: bool = False
    """Of documents that gave no row."""

    def count(self, batch: Texts) -> None:
        """Count documents that were read."""
        self.documents += len(batch.texts) + batch.num_null
        self.null += batch.num_null
        self.text_bytes += batch.num_bytes

    def timed(self, stage: str, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """What `work` returns; its time is booked on a stage."""
        started = time.perf_counter()
        try:
            return work(*args, **options)
        finally:
            self.stage_seconds[stage] += time.perf_counter() - started

    @property
    def rows_per_second(self) -> float:
        """Rows by the time that passed."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens by the time that passed."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def tell(self) -> None:
        """Log the summary, and warn of documents that gave no row."""
        logger.info("%s", self)
        self.warn()

    def warn(self, so_far: str = "") -> None:
        """Warn of documents that gave no row, once."""
        without_row = self.empty + self.null
        if without_row and not self.has_warned:
            self.has_warned = True
            logger.warning(
                "%d documents gave no row%s: %d without tokens, %d null",
                without_row,
                so_far,
                self.empty,
                self.null,
            )

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {spent:.2f} s" for name, spent in self.stage_seconds.items())
        return (
            f"{self.documents:,} documents -> {self.rows:,} rows, {self.tokens:,} tokens in "
            f"{self.seconds:.2f} s: {self.rows_per_second:,.0f} rows/s, "
            f"{self.tokens_per_second:,.0f} tokens/s ({stages})"
        )

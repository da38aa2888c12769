"""Counts of a run and the time of each stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from tokenmill.hf.log import logger
from tokenmill.hf.source import Texts

P = ParamSpec("P")
T = TypeVar("T")

STAGES = ("read", "encode", "windows", "write")
COUNTS = ("documents", "null", "empty", "cut", "text_bytes", "tokens")
"""The counts that a resumed run takes over."""


@dataclass(slots=True)
class Summary:
    """Counts and seconds of one call of `tokenize`, over all splits."""

    documents: int = 0
    """Documents read, including those that gave no row."""
    null: int = 0
    """Documents whose text is null."""
    empty: int = 0
    """Documents without tokens."""
    cut: int = 0
    """Documents longer than a row. All their tokens are in rows."""
    text_bytes: int = 0
    """Bytes of text in UTF-8."""
    rows: int = 0
    tokens: int = 0
    """Tokens in rows, without padding. Overlapping tokens count in each row."""
    reused: list[str] = field(default_factory=list)
    """Files of an earlier run that were reused. Only their rows and documents are counted."""
    resumed_rows: int = 0
    """Rows made by an interrupted run."""
    seconds: float = 0.0
    """Seconds of the call. For iterable datasets, the seconds spent making rows in this process."""
    stage_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    """Seconds by stage. Two threads work, so the sum can exceed `seconds`."""
    has_warned: bool = False
    """Of documents that gave no row."""

    def count(self, batch: Texts) -> None:
        """Count documents that were read."""
        self.documents += len(batch.texts) + batch.num_null
        self.null += batch.num_null
        self.text_bytes += batch.num_bytes

    @property
    def counts(self) -> dict[str, int]:
        """The counts by name."""
        return {name: getattr(self, name) for name in COUNTS}

    def since(self, before: dict[str, int]) -> dict[str, int]:
        """The growth of the counts since `before`."""
        return {name: value - before[name] for name, value in self.counts.items()}

    def resume(self, counts: dict[str, int], num_rows: int) -> None:
        """Add the counts of an interrupted run."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + counts.get(name, 0))
        self.rows += num_rows
        self.resumed_rows += num_rows

    def reuse(self, path: str, num_documents: int, num_rows: int) -> None:
        """Count rows that were opened instead of made."""
        self.reused.append(path)
        self.documents += num_documents
        self.rows += num_rows
        logger.info(
            "reusing the rows of an earlier run: %s: %s rows of %s documents",
            path,
            f"{num_rows:,}",
            f"{num_documents:,}",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the counts and times as a dict."""
        return {
            **self.counts,
            "rows": self.rows,
            "resumed_rows": self.resumed_rows,
            "reused": self.reused,
            "seconds": round(self.seconds, 3),
            "stage_seconds": {name: round(time, 3) for name, time in self.stage_seconds.items()},
        }

    def timed(self, stage: str, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call `work`, add its time to a stage, and return its result."""
        started = time.perf_counter()
        try:
            return work(*args, **options)
        finally:
            self.stage_seconds[stage] += time.perf_counter() - started

    def debug_batch(self, batch: Texts, before: dict[str, float]) -> None:
        """Log an encoded batch, with the time of each stage since the previous one.

        Windows and writing are those of the batch before, which a second thread makes.
        """
        spent = ", ".join(
            f"{name} {seconds - before.get(name, 0.0):.3f} s"
            for name, seconds in self.stage_seconds.items()
        )
        logger.debug(
            "documents %d to %d, %d bytes: %s",
            batch.first,
            batch.first + len(batch.texts) + batch.num_null - 1,
            batch.num_bytes,
            spent,
        )

    @property
    def rows_per_second(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def tell(self) -> None:
        """Log the summary, and warn if documents gave no row."""
        logger.info("%s", self)
        self.warn()

    def warn(self, so_far: str = "") -> None:
        """Warn once if documents gave no row."""
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
        if self.reused and not self.tokens:
            return f"{self.documents:,} documents -> {self.rows:,} rows, all of an earlier run"
        stages = ", ".join(f"{name} {spent:.2f} s" for name, spent in self.stage_seconds.items())
        notes = f"; {self.cut:,} documents are longer than a row" if self.cut else ""
        notes += f"; {self.resumed_rows:,} rows are from an interrupted run" * bool(
            self.resumed_rows
        )
        return (
            f"{self.documents:,} documents -> {self.rows:,} rows, {self.tokens:,} tokens in "
            f"{self.seconds:.2f} s: {self.rows_per_second:,.0f} rows/s, "
            f"{self.tokens_per_second:,.0f} tokens/s ({stages}){notes}"
        )

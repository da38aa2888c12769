"""What a run tells: counts and the time of each stage, progress, and the logger of the package."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from tokenmill.core.values import rounded, size_text

P = ParamSpec("P")
T = TypeVar("T")

STAGES = ("read", "encode", "windows", "write")
COUNTS = ("documents", "null", "empty", "cut", "text_bytes", "tokens")
"""The counts that a resumed run takes over."""
LINE_SECONDS = 10.0
"""Between two lines of progress in a log."""

logger = logging.getLogger("tokenmill.hf")


@contextmanager
def logging_at(level: str) -> Iterator[None]:
    """Log at a level for one run, on standard error if the program has not set up logging."""
    before = logger.level
    handler = None if logger.hasHandlers() else logging.StreamHandler()
    logger.setLevel(level)
    if handler:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        if handler:
            logger.removeHandler(handler)


@contextmanager
def progress(total_bytes: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a callback for finished bytes: a bar on a terminal or in a notebook, lines in a log."""
    if shown and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        from tqdm.auto import tqdm

        with tqdm(total=total_bytes, unit="B", unit_scale=True, desc="tokenizing") as bar:
            yield bar.update
            bar.total = bar.n  # the total was an estimate
        return
    import psutil

    from tokenmill.run.progress import usage

    process, (begun, _) = psutil.Process(), usage(set())
    done, started = 0, time.monotonic()
    told = started

    def advance(num_bytes: int) -> None:
        nonlocal done, told
        done, now = done + num_bytes, time.monotonic()
        if shown and now - told >= LINE_SECONDS:
            told, share = now, min(done / max(total_bytes, 1), 1.0)
            cpu, memory = usage({child.pid for child in process.children()})
            speed = size_text(done / (now - started), rounded)
            used = f"{(cpu - begun) / (now - started):.1f} cores, {size_text(memory)} of memory"
            logger.info("tokenizing: %.0f%%, %s of text a second, %s", 100 * share, speed, used)

    yield advance


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

    def count(self, documents: int, null: int, text_bytes: int) -> None:
        """Count documents that were read."""
        self.documents += documents
        self.null += null
        self.text_bytes += text_bytes

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
        counts = f"{num_rows:,} rows of {num_documents:,} documents"
        logger.info("reusing the rows of an earlier run: %s: %s", path, counts)

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

    def warn(self, so_far: str = "") -> None:
        """Warn once if documents gave no row."""
        without_row = self.empty + self.null
        if without_row and not self.has_warned:
            self.has_warned = True
            why = f"{self.empty} without tokens, {self.null} null"
            logger.warning("%d documents gave no row%s: %s", without_row, so_far, why)

    def __str__(self) -> str:
        if self.reused and not self.tokens:
            return f"{self.documents:,} documents -> {self.rows:,} rows, all of an earlier run"
        stages = ", ".join(f"{name} {spent:.2f} s" for name, spent in self.stage_seconds.items())
        seconds = max(self.seconds, 1e-9)
        speed = size_text(self.text_bytes / seconds, rounded)
        notes = f"; {self.cut:,} documents are longer than a row" if self.cut else ""
        if self.resumed_rows:
            notes += f"; {self.resumed_rows:,} rows are from an interrupted run"
        return (
            f"{self.documents:,} documents -> {self.rows:,} rows, {self.tokens:,} tokens in "
            f"{self.seconds:.2f} s: {self.rows / seconds:,.0f} rows/s, "
            f"{self.tokens / seconds:,.0f} tokens/s, {speed}/s of text ({stages}){notes}"
        )

"""Run every arrangement in its own process, one after another, and yield the rows."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from tokenmill.core.errors import InternalError, Interrupted
from tokenmill.core.records import Advance
from tokenmill.encode.encodings import RankEncoding
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.report.tokenizers.bench.arrangements import (
    Arrangement,
    arrangements_for,
    batch_sizes_left_out,
    by_importance,
)
from tokenmill.report.tokenizers.bench.child import Measurement, Task
from tokenmill.report.tokenizers.bench.documents import Documents, take_documents
from tokenmill.report.tokenizers.source import open_tokenizer
from tokenmill.run.local.fleet import WORKER_ENVIRONMENT
from tokenmill.run.machine.cores import usable_cores

SECONDS = 50.0
START_SECONDS = 3.0
"""Assumed memory of a process with an encoder that was not measured yet."""
THREADS = ("RAYON_NUM_THREADS", "RAYON_RS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is measured."""

    tokenizer: str
    encoding: str | RankEncoding = ""
    num_documents: int = 1000
    inputs: Sequence[str] = ()
    text_field: str = "text"
    seconds: float = SECONDS
    """Time limit in seconds: no measurement begins that would exceed it, except the first."""


@dataclass(frozen=True, slots=True)
class Row:
    """One arrangement with its figures, or the reason why it has none."""

    arrangement: Arrangement
    remark: str = ""
    """Why there are no figures; "" where there are."""
    seconds: float = 0.0
    """Median of the passes after the first."""
    num_passes: int = 0
    first_seconds: float = 0.0
    """Figures of the first pass, when the documents are new to the encoder."""
    documents_per_second: float = 0.0
    tokens_per_second: float = 0.0
    speed_up: float | None = None
    """Relative to single calls of `baseline`; None if those failed."""
    startup_seconds: float = 0.0
    peak_bytes: int = 0
    num_different: int = 0
    """Documents with other ids than in the first row with figures."""


@dataclass(frozen=True, slots=True)
class BenchReport:
    """A table of figures with its title."""

    tokenizer: str
    kind: str
    documents: str
    """Where they are from."""
    num_documents: int
    num_bytes: int
    num_cores: int
    baseline: str
    """The encoder whose single calls the others are compared with."""
    rows: list[Row]
    """The figures in the order of measurement."""
    notes: list[str]
    stopped_by: int = 0
    """The signal that stopped it before all rows were measured; 0 if none."""


def bench_tokenizer(
    options: BenchOptions,
    advance: Advance = lambda stage, done, total: None,
    show: Callable[[Row], None] = lambda row: None,
) -> BenchReport:
    """Measure a tokenizer in as many arrangements as time allows; `show` gets each row.

    A signal ends it, and what was measured by then is reported.

    Raises:
        UserError: the tokenizer or the inputs cannot be used.
        DataError: an input is damaged.
    """
    started = time.monotonic()
    file = open_tokenizer(options.tokenizer, options.encoding)
    documents = take_documents(options.num_documents, options.inputs, options.text_field)
    num_cores = usable_cores()
    planned = list(arrangements_for(file, len(documents.texts), num_cores))
    rows = _Rows(len(documents.texts), show)
    rows.add(_absent(file))
    schedule = _Schedule(planned, started + options.seconds)
    stopped_by = 0
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as name:
        folder = Path(name)
        (folder / "documents.json").write_bytes(msgspec.json.encode(documents.texts))
        try:
            for arrangement in schedule.due():
                advance(arrangement.encoder, schedule.num_done, len(planned))
                rows.add_result(arrangement, _measured(options, arrangement, folder))
        except Interrupted as error:
            stopped_by = error.exit_code - 128
    return BenchReport(
        tokenizer=file.origin,
        kind=file.kind,
        documents=documents.origin,
        num_documents=len(documents.texts),
        num_bytes=documents.num_bytes,
        num_cores=num_cores,
        baseline=planned[0].encoder,
        rows=rows.rows,
        notes=[*_notes(documents), *schedule.notes(options.seconds, stopped_by)],
        stopped_by=stopped_by,
    )


class _Schedule:
    """Which arrangements are measured, one after another, before time is up."""

    def __init__(self, planned: Sequence[Arrangement], end: float) -> None:
        self._waiting = list(planned)
        self._end = end
        self._longest: dict[tuple[str, bool], float] = {}
        self._left_out: list[Arrangement] = []
        self._current: Arrangement | None = None
        self.num_done = 0

    def due(self) -> Iterator[Arrangement]:
        """The first arrangement, then all in order, or the most important ones if time is short."""
        while self._waiting:
            arrangement = self._waiting.pop(0)
            started = time.monotonic()
            if self.num_done and started + self._seconds_of(arrangement) > self._end:
                self._left_out.append(arrangement)
                continue
            self._current = arrangement
            yield arrangement
            self._current = None
            self.num_done += 1
            kind, seconds = _kind(arrangement), time.monotonic() - started
            self._longest[kind] = max(self._longest.get(kind, 0.0), seconds)
            if self.num_done == 1 and started + seconds * (len(self._waiting) + 1) > self._end:
                self._waiting = by_importance([arrangement, *self._waiting])[1:]

    def notes(self, seconds: float, stopped_by: int) -> Iterator[str]:
        """What was not measured, and why."""
        if stopped_by:
            rest = [self._current] if self._current else []
            rest += self._waiting
            names = ", ".join(each.name for each in rest)
            yield f"interrupted by {signal.Signals(stopped_by).name}; not measured: {names}"
        if self._left_out:
            names = ", ".join(each.name for each in self._left_out)
            yield f"left out to end within {seconds:,.0f} s (--seconds): {names}"

    def _seconds_of(self, arrangement: Arrangement) -> float:
        """Expected time: that of a similar arrangement, or of a start if there was none."""
        encoder, is_apart = _kind(arrangement)
        of_other = self._longest.get((encoder, not is_apart), START_SECONDS)
        return self._longest.get((encoder, is_apart), of_other)


def _kind(arrangement: Arrangement) -> tuple[str, bool]:
    """Workers take longer to start than a call does, and then less time."""
    return arrangement.encoder, arrangement.processes > 0


def _measured(options: BenchOptions, arrangement: Arrangement, folder: Path) -> Measurement | str:
    """The result of a child, or the end of its output if it fails."""
    task = Task(
        tokenizer=options.tokenizer,
        encoding=options.encoding,
        arrangement=arrangement,
        documents_path=str(folder / "documents.json"),
    )
    (folder / "task.json").write_bytes(msgspec.json.encode(task))
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    # -P: no module is looked for in the folder where the command happens to be run.
    command = [sys.executable, "-P", "-m", "tokenmill.report.tokenizers.bench.child", str(folder)]
    path = os.pathsep.join(sys.path)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **_environment(arrangement), "PYTHONPATH": path},
        start_new_session=True,  # its workers end with it, however it ends
    )
    try:
        _, said = child.communicate()
    finally:
        _end(child)
    if child.returncode or not result.is_file():
        lines = said.decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        if child.returncode:
            return f"failed with exit code {child.returncode}: {last}"
        return f"failed: it ended without a result: {last}"
    return msgspec.json.decode(result.read_bytes(), type=Measurement)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Stop a child process and its workers if they still run."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def _environment(arrangement: Arrangement) -> dict[str, str]:
    """Threads of the arrangement; one per worker if there are several, as in a build."""
    if arrangement.threads == 1 or arrangement.python_threads:
        return WORKER_ENVIRONMENT
    threads = dict.fromkeys(THREADS, str(arrangement.threads))
    return {**threads, "TOKENIZERS_PARALLELISM": "true"}


class _Rows:
    """Measured rows."""

    def __init__(self, num_documents: int, show: Callable[[Row], None]) -> None:
        self.rows: list[Row] = []
        self._num_documents = num_documents
        self._show = show
        self._expected: bytes | None = None
        """Digests of the first row with figures."""
        self._base: float | None = None
        """Seconds of single calls, measured first."""
        self._has_first = False

    def add(self, row: Row) -> None:
        """Store and print a row."""
        self.rows.append(row)
        self._show(row)

    def add_result(self, arrangement: Arrangement, result: Measurement | str) -> None:
        """Make a row from the result of a child, or from the reason of its failure."""
        is_first, self._has_first = not self._has_first, True
        if isinstance(result, str):
            self.add(Row(arrangement, result))
            return
        if len(result.digests) != 8 * self._num_documents:
            raise InternalError("an arrangement left documents out")
        seconds = statistics.median(result.seconds)
        if is_first:
            self._base = seconds
        if self._expected is None:
            self._expected = result.digests
        self.add(
            Row(
                arrangement,
                seconds=seconds,
                num_passes=len(result.seconds),
                first_seconds=result.first_seconds,
                documents_per_second=self._num_documents / seconds,
                tokens_per_second=result.num_tokens / seconds,
                speed_up=self._base / seconds if self._base else None,
                startup_seconds=result.startup_seconds,
                peak_bytes=result.peak_bytes,
                num_different=_num_different(result.digests, self._expected),
            )
        )


def _num_different(digests: bytes, expected: bytes) -> int:
    return int((np.frombuffer(digests, "<u8") != np.frombuffer(expected, "<u8")).sum())


def _absent(file: TokenizerFile) -> Row:
    """A row for a figure that this kind of tokenizer does not have."""
    if KINDS[file.kind].is_slow:
        remark = "none: the tokenizer is a Python object, which takes one text a call"
        return Row(Arrangement(encoder="fast", batch_size=1), remark)
    return Row(
        Arrangement(encoder="slow", batch_size=1), "none: the tokenizer is not a Python object"
    )


def _notes(documents: Documents) -> list[str]:
    notes = list(documents.notes)
    if sizes := batch_sizes_left_out(len(documents.texts)):
        notes.append(f"left out: batches of {', '.join(map(str, sizes))}, more than the documents")
    return notes

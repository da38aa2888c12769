"""Every arrangement one after another, each in a process of its own, and what came of it."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from tokenmill.encode.kinds import KINDS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.errors import InternalError
from tokenmill.records import Advance
from tokenmill.report.tokenizers.bench.arrangements import (
    Arrangement,
    arrangements_for,
    batch_sizes_left_out,
)
from tokenmill.report.tokenizers.bench.child import Measurement, Task
from tokenmill.report.tokenizers.bench.documents import Documents, take_documents
from tokenmill.report.tokenizers.source import open_tokenizer
from tokenmill.run.local.worker import WORKER_ENVIRONMENT
from tokenmill.run.machine.cores import usable_cores

THREADS = ("RAYON_NUM_THREADS", "RAYON_RS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is measured."""

    tokenizer: str
    encoding: str = ""
    num_documents: int = 1000
    inputs: Sequence[str] = ()
    text_field: str = "text"


@dataclass(frozen=True, slots=True)
class Row:
    """One arrangement with its figures, or with the reason why it has none."""

    arrangement: Arrangement
    remark: str = ""
    """Why there are no figures; "" where there are."""
    seconds: float = 0.0
    """Median of the passes after the first."""
    num_passes: int = 0
    first_seconds: float = 0.0
    """Of the first pass, when the documents are new to the encoder."""
    documents_per_second: float = 0.0
    tokens_per_second: float = 0.0
    speed_up: float | None = None
    """Against single calls of `baseline`; None where those failed."""
    startup_seconds: float = 0.0
    peak_bytes: int = 0
    num_different: int = 0
    """Documents whose ids are not those of the first row that has figures."""


@dataclass(frozen=True, slots=True)
class BenchReport:
    """A table, and what is to be known of it."""

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
    notes: list[str]


def bench_tokenizer(
    options: BenchOptions, advance: Advance = lambda stage, done, total: None
) -> BenchReport:
    """Measure a tokenizer in every arrangement; takes about a minute with the defaults.

    Raises:
        UserError: the tokenizer or the inputs cannot be used.
        DataError: an input is damaged.
    """
    file = open_tokenizer(options.tokenizer, options.encoding)
    documents = take_documents(options.num_documents, options.inputs, options.text_field)
    num_cores = usable_cores()
    planned = list(arrangements_for(file, len(documents.texts), num_cores))
    results: list[Measurement | str] = []
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as name:
        folder = Path(name)
        (folder / "documents.json").write_bytes(msgspec.json.encode(documents.texts))
        for number, arrangement in enumerate(planned):
            advance(arrangement.encoder, number, len(planned))
            results.append(_measured(options, arrangement, folder))
    return BenchReport(
        tokenizer=file.origin,
        kind=file.kind,
        documents=documents.origin,
        num_documents=len(documents.texts),
        num_bytes=documents.num_bytes,
        num_cores=num_cores,
        baseline=planned[0].encoder,
        rows=[_absent(file), *_rows(planned, results, len(documents.texts))],
        notes=_notes(documents),
    )


def _measured(options: BenchOptions, arrangement: Arrangement, folder: Path) -> Measurement | str:
    """What a child finds; the end of what it says where it fails."""
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
    """End a child and its workers, where there are any left."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def _environment(arrangement: Arrangement) -> dict[str, str]:
    """Threads as the arrangement says; one each where others work beside it, as in a build."""
    if arrangement.threads == 1 or arrangement.python_threads:
        return WORKER_ENVIRONMENT
    threads = dict.fromkeys(THREADS, str(arrangement.threads))
    return {**threads, "TOKENIZERS_PARALLELISM": "true"}


def _rows(
    planned: list[Arrangement], results: list[Measurement | str], num_documents: int
) -> list[Row]:
    measured = [result for result in results if isinstance(result, Measurement)]
    if any(len(result.digests) != 8 * num_documents for result in measured):
        raise InternalError("an arrangement left documents out")
    single = results[0]
    base = statistics.median(single.seconds) if isinstance(single, Measurement) else None
    rows = []
    for arrangement, result in zip(planned, results, strict=True):
        if isinstance(result, str):
            rows.append(Row(arrangement, result))
            continue
        seconds = statistics.median(result.seconds)
        rows.append(
            Row(
                arrangement,
                seconds=seconds,
                num_passes=len(result.seconds),
                first_seconds=result.first_seconds,
                documents_per_second=num_documents / seconds,
                tokens_per_second=result.num_tokens / seconds,
                speed_up=base / seconds if base else None,
                startup_seconds=result.startup_seconds,
                peak_bytes=result.peak_bytes,
                num_different=_num_different(result.digests, measured[0].digests),
            )
        )
    return rows


def _num_different(digests: bytes, expected: bytes) -> int:
    return int((np.frombuffer(digests, "<u8") != np.frombuffer(expected, "<u8")).sum())


def _absent(file: TokenizerFile) -> Row:
    """The row of what this kind of tokenizer does not have."""
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

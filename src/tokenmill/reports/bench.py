"""Compare ways to encode documents with a tokenizer: single calls, batches, processes, engines.

Each way is measured in processes of its own, with their own memory and threads. They say when they
are ready, and encode when they are told to.
"""

from __future__ import annotations

import signal
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import psutil
import xxhash

from tokenmill.core.child import Child, Parent, Program
from tokenmill.core.errors import EngineError, Interrupted, UserError
from tokenmill.core.records import Advance, TokenBatch
from tokenmill.encode.encodings import RankEncoding
from tokenmill.encode.engine_ranking import REFERENCE, load_engine, rank_engines
from tokenmill.encode.kinds import KINDS, load_any_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.sources import find_sources
from tokenmill.reports.tokenizers.subject import open_tokenizer
from tokenmill.run.machine import usable_cores
from tokenmill.run.pool import WORKER_ENVIRONMENT

BATCH_SIZES = (256, 32, 1000)
MAX_BYTES = 64 << 20
"""All documents together, in UTF-8; every process holds its share of them."""
LIBRARY_CHARACTERS = 2_000
READ_BYTES = 1 << 20
NUM_PASSES = 3
ENOUGH_SECONDS = 2.0
"""No further pass begins after this many seconds in total."""
ENGINE_CACHE_BYTES = 500_000_000
"""About the cache that a build with two workers gives each."""


class Arrangement(msgspec.Struct, frozen=True, kw_only=True):
    """A way to encode the documents."""

    encoder: str
    """A library: tokenizers, tiktoken, sentencepiece, slow for a Python object; or an engine."""
    batch_size: int
    """Documents of one call; 1 is the library's call for a single text."""
    threads: int = 1
    """Threads of the library."""
    processes: int = 1
    """Processes that encode at the same time, each its share of the documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What is measured."""

    tokenizer: str
    encoding: str | RankEncoding = ""
    num_documents: int = 1000
    inputs: Sequence[str] = ()
    text_field: str = "text"
    seconds: float = 50.0
    """No measurement begins that would probably exceed this limit, except the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One arrangement with its figures, or the reason why it has none."""

    arrangement: Arrangement
    remark: str = ""
    """Why there are no figures; "" where there are."""
    seconds: float = 0.0
    """Median of the passes after the first; the slowest of several processes counts."""
    first_seconds: float = 0.0
    """The first pass, when the documents are new to the encoder."""
    documents_per_second: float = 0.0
    tokens_per_second: float = 0.0
    speed_up: float | None = None
    """Relative to the first row; None if that failed."""
    startup_seconds: float = 0.0
    """From the start of a process until the first text could be encoded."""
    peak_bytes: int = 0
    """Largest resident memory of all processes, added up."""
    num_different: int = 0
    """Documents with other ids than in the first row with figures."""


@dataclass(slots=True, kw_only=True)
class BenchReport:
    """The rows in the order of measurement, and what was measured."""

    tokenizer: str
    kind: str
    documents: str
    """Where they are from."""
    num_documents: int
    num_bytes: int
    num_cores: int
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stopped_by: int = 0
    """The signal that stopped it before all rows were measured; 0 if none."""


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task of one process."""

    tokenizer: str
    encoding: str | RankEncoding
    arrangement: Arrangement
    documents_path: str
    """A JSON list of texts."""
    share: int
    """Which of the equal shares of the documents this process encodes, from 0."""


class _Measurement(msgspec.Struct, tag="measurement", frozen=True, kw_only=True):
    """The result of one process; the first one only says that it is ready."""

    first_seconds: float = 0.0
    seconds: float = 0.0
    num_tokens: int = 0
    digests: bytes = b""
    """xxh3-64 of the ids of each document."""
    startup_seconds: float
    peak_bytes: int = 0


class _Failed(msgspec.Struct, tag="failed"):
    """The process cannot encode with this tokenizer."""

    why: str


_Reply = _Measurement | _Failed


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
    texts, notes = take_documents(options.num_documents, options.inputs, options.text_field)
    planned = arrangements_for(file, len(texts), usable_cores())
    report = BenchReport(
        tokenizer=file.origin,
        kind=file.kind,
        documents=", ".join(options.inputs) or "sources of Python's standard library",
        num_documents=len(texts),
        num_bytes=sum(len(text.encode()) for text in texts),
        num_cores=usable_cores(),
        notes=notes,
    )
    left, longest = list(planned), 0.0
    expected: list[bytes] = []
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as folder:
        path = Path(folder) / "documents.json"
        path.write_bytes(msgspec.json.encode(texts))
        try:
            while left:
                begun = time.monotonic()
                if report.rows and begun - started + longest > options.seconds:
                    report.notes.append(f"left out after {options.seconds:,.0f} s: {_names(left)}")
                    break
                advance(left[0].encoder, len(report.rows), len(planned))
                report.rows.append(_row(options, left[0], path, report, expected))
                show(report.rows[-1])
                left.pop(0)
                longest = max(longest, time.monotonic() - begun)
        except Interrupted as error:
            report.stopped_by = error.exit_code - 128
            name = signal.Signals(report.stopped_by).name
            report.notes.append(f"interrupted by {name}; not measured: {_names(left)}")
    return report


def arrangements_for(file: TokenizerFile, num_documents: int, num_cores: int) -> list[Arrangement]:
    """Return the arrangements, the most important ones first."""
    library = _library(file)
    threads = num_cores if library == "tokenizers" else 1
    shared = max(min(num_documents // num_cores, 256), 1)
    batches = [
        Arrangement(encoder=library, batch_size=size, threads=threads)
        for size in BATCH_SIZES
        if size <= num_documents and library != "slow"  # such an object has no batch call
    ]
    engines = [
        [
            Arrangement(encoder=name, batch_size=min(num_documents, 256)),
            Arrangement(encoder=name, batch_size=shared, processes=num_cores),
        ]
        for name in rank_engines(file, control_tokens=False).names
        if name != REFERENCE
    ]
    planned = [Arrangement(encoder=library, batch_size=1), *batches[:1]]
    planned += [arrangement for rows in engines[:1] for arrangement in rows]
    if num_cores > 1:
        planned.append(Arrangement(encoder=library, batch_size=shared, processes=num_cores))
    planned += [arrangement for rows in engines[1:] for arrangement in rows] + batches[1:]
    return list(dict.fromkeys(planned))  # on one core, one process is no other way


def take_documents(
    num_documents: int, inputs: Sequence[str], text_field: str
) -> tuple[list[str], list[str]]:
    """Return the first documents of the inputs, and notes; without inputs, of Python's library.

    Raises:
        UserError: the inputs hold no document.
        DataError: an input is damaged.
    """
    texts: list[str] = []
    num_bytes = 0
    for text in islice(_read(inputs, text_field) if inputs else _library_texts(), num_documents):
        num_bytes += len(text.encode())
        if num_bytes > MAX_BYTES:
            break
        texts.append(text)
    if not texts:
        where = ", ".join(inputs)
        raise UserError("no documents to encode", where=where, hint="check --text-field")
    if len(texts) < num_documents:
        return texts, [f"{len(texts):,} documents, where {num_documents:,} were asked for"]
    return texts, []


def _read(inputs: Sequence[str], text_field: str) -> Iterator[str]:
    sources = find_sources(inputs)
    reader = Reader(sources, Fields(text=text_field), READ_BYTES)
    for source in sources:
        for batch in reader.read(Extent(source.index)):
            yield from filter(None, batch.texts)


def _library_texts() -> Iterator[str]:
    """Yield the sources of the standard library, in parts of equal length."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for start in range(0, len(text), LIBRARY_CHARACTERS):
            yield text[start : start + LIBRARY_CHARACTERS]


def _names(arrangements: Sequence[Arrangement]) -> str:
    return ", ".join(
        f"{each.encoder} by {each.batch_size}, threads {each.threads}, processes {each.processes}"
        for each in arrangements
    )


def _row(
    options: BenchOptions,
    arrangement: Arrangement,
    path: Path,
    report: BenchReport,
    expected: list[bytes],
) -> Row:
    """Measure an arrangement; `expected` holds the digests of the first row with figures."""
    tasks = [
        _Task(
            tokenizer=options.tokenizer,
            encoding=options.encoding,
            arrangement=arrangement,
            documents_path=str(path),
            share=share,
        )
        for share in range(arrangement.processes)
    ]
    try:
        found = _measured(tasks)
    except EngineError as error:
        return Row(arrangement=arrangement, remark=f"failed: {error.why}")
    seconds = max(each.seconds for each in found)
    digests = np.concatenate([np.frombuffer(each.digests, "<u8") for each in found])
    if not expected:
        expected.append(digests.tobytes())
    first = report.rows[0].seconds if report.rows else seconds
    return Row(
        arrangement=arrangement,
        seconds=seconds,
        first_seconds=max(each.first_seconds for each in found),
        documents_per_second=report.num_documents / seconds,
        tokens_per_second=sum(each.num_tokens for each in found) / seconds,
        speed_up=first / seconds if first else None,
        startup_seconds=max(each.startup_seconds for each in found),
        peak_bytes=sum(each.peak_bytes for each in found),
        num_different=int((digests != np.frombuffer(expected[0], "<u8")).sum()),
    )


def _measured(tasks: Sequence[_Task]) -> list[_Measurement]:
    """Run one process per task, which all begin to encode at the same time.

    Raises:
        ChildEnded: a process died.
        EngineError: a process failed.
    """
    threads = tasks[0].arrangement.threads
    environment = {
        **WORKER_ENVIRONMENT,
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": str(threads > 1).lower(),
    }
    program = Program(
        module=__name__, task="encodes", replies=_Reply, environment=environment, stderr="discarded"
    )
    children: list[Child] = []
    try:
        for task in tasks:
            children.append(Child(program))
            children[-1].send(task)
        for child in children:
            _received(child)
        for child in children:
            child.send(tasks[0])
        return [_received(child) for child in children]
    finally:
        for child in children:
            child.end()


def _received(child: Child) -> _Measurement:
    reply, _ = child.receive()
    if isinstance(reply, _Failed):
        raise EngineError("a process failed", why=reply.why)
    measurement: _Measurement = reply
    return measurement


def main() -> None:
    """Get ready for a task; encode its documents several times after the next message."""
    parent = Parent(_Task)
    task, _ = parent.receive()
    try:
        file = open_tokenizer(task.tokenizer, task.encoding)
        encode = open_encoder(file, task.arrangement.encoder)
        encode(["a"])  # some load more with the first text
    except Exception as error:  # reported, whatever a tokenizer of the user raises
        parent.send(_Failed(why=f"{type(error).__name__}: {error}"))
        return
    startup = time.time() - psutil.Process().create_time()
    parent.send(_Measurement(startup_seconds=startup))
    every = msgspec.json.decode(Path(task.documents_path).read_bytes(), type=list[str])
    size, processes = task.arrangement.batch_size, task.arrangement.processes
    edges = [len(every) * number // processes for number in (task.share, task.share + 1)]
    texts = every[edges[0] : edges[1]]
    batches = [texts[start : start + size] for start in range(0, len(texts), size)]
    parent.receive()
    passes: list[float] = []
    while len(passes) <= NUM_PASSES and sum(passes[1:]) < ENOUGH_SECONDS:
        encoded: list[TokenBatch] = []  # before the next pass, so that ids are held once
        begun = time.perf_counter()
        encoded.extend(map(encode, batches))
        passes.append(time.perf_counter() - begun)
    ids = [found for batch in encoded for found in np.split(batch.ids, batch.offsets[1:-1])]
    parent.send(
        _Measurement(
            first_seconds=passes[0],
            seconds=statistics.median(passes[1:]),
            num_tokens=sum(map(len, ids)),
            digests=b"".join(xxhash.xxh3_64_digest(found.tobytes()) for found in ids),
            startup_seconds=startup,
            peak_bytes=_peak_bytes(),
        )
    )


def open_encoder(file: TokenizerFile, name: str) -> Callable[[Sequence[str]], TokenBatch]:
    """Return the call of an encoder for one batch. Special tokens in texts are ordinary text.

    Raises:
        UserError: the tokenizer, or its library, cannot be loaded.
        EngineError: the engine does not take the tokenizer.
    """
    if name == _library(file):
        return load_any_reference(file)[0].encode
    return load_engine(name, file, False, ENGINE_CACHE_BYTES).encode


def _library(file: TokenizerFile) -> str:
    kind = KINDS[file.kind]
    return "slow" if kind.is_slow else kind.library


def _peak_bytes() -> int:
    """Return the largest resident memory of this process; the current one if it is not known.

    `ru_maxrss` is no help: on Linux it begins with the memory of the process that started it.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(psutil.Process().memory_info().rss)

"""Measure one arrangement in its own process, with its own memory and threads.

Started as `python -m tokenmill.report.tokenizers.bench.child FOLDER`. The folder holds `task.json`;
`result.json` is written there.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path

import msgspec
import psutil

from tokenmill.encode.encodings import RankEncoding
from tokenmill.report.tokenizers.bench.arrangements import Arrangement
from tokenmill.report.tokenizers.bench.encoders import (
    Encode,
    Encoded,
    digests_of,
    num_tokens,
    open_encoder,
)
from tokenmill.report.tokenizers.source import open_tokenizer

NUM_PASSES = 3
ENOUGH_SECONDS = 2.0
"""No further pass begins after this many seconds in total."""
START_SECONDS = 120.0

Batches = Sequence[Sequence[str]]
Run = Callable[[Batches], Iterable[Encoded]]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a child."""

    tokenizer: str
    encoding: str | RankEncoding
    arrangement: Arrangement
    documents_path: str
    """A JSON list of texts."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a child."""

    first_seconds: float
    """Seconds of the first pass over all documents, which fills the caches of an encoder."""
    seconds: list[float]
    """Of each further pass."""
    num_tokens: int
    digests: bytes
    """xxh3-64 of the ids of each document."""
    startup_seconds: float
    """From the start of the process until the first text could be encoded."""
    peak_bytes: int
    """Largest resident memory of the process, and of each of its workers, added up."""


def measure(task: Task) -> Measurement:
    """Encode all documents several times; digests come from the last pass."""
    texts = msgspec.json.decode(Path(task.documents_path).read_bytes(), type=list[str])
    size = task.arrangement.batch_size
    batches = [texts[start : start + size] for start in range(0, len(texts), size)]
    with _arranged(task) as run:
        startup = time.time() - psutil.Process().create_time()
        first_seconds, tokens = _first_pass(run, batches)
        workers = [process.pid for process in multiprocessing.active_children()]
        # Here, as further passes keep what they encode.
        peaks = [_peak_bytes(pid) for pid in (os.getpid(), *workers) if pid is not None]
        seconds: list[float] = []
        while len(seconds) < NUM_PASSES and sum(seconds) < ENOUGH_SECONDS:
            encoded: list[Encoded] = []
            started = time.perf_counter()
            encoded.extend(run(batches))
            seconds.append(time.perf_counter() - started)
        digests = b"".join(map(digests_of, encoded))
    return Measurement(
        first_seconds=first_seconds,
        seconds=seconds,
        num_tokens=tokens,
        digests=digests,
        startup_seconds=startup,
        peak_bytes=sum(peaks),
    )


def _first_pass(run: Run, batches: Batches) -> tuple[float, int]:
    """Seconds and tokens of a pass over all documents, whose ids are dropped."""
    started = time.perf_counter()
    tokens = sum(map(num_tokens, run(batches)))
    return time.perf_counter() - started, tokens


@contextmanager
def _arranged(task: Task) -> Iterator[Run]:
    """Yield a function that encodes batches in order: here, in threads, or in worker processes."""
    arrangement = task.arrangement
    if arrangement.processes:
        count = arrangement.processes
        context = multiprocessing.get_context("spawn")
        arguments = (task, context.Barrier(count))
        with ProcessPoolExecutor(count, context, _start_worker, arguments) as workers:
            for waiting in [workers.submit(_wait_for_others) for _ in range(count)]:
                waiting.result()
            yield lambda batches: workers.map(_encode_in_worker, batches)
        return
    encode = _open(task)
    if not arrangement.python_threads:
        yield lambda batches: map(encode, batches)
        return
    with ThreadPoolExecutor(arrangement.threads) as threads:
        yield lambda batches: threads.map(encode, batches)


def _open(task: Task) -> Encode:
    encode = open_encoder(open_tokenizer(task.tokenizer, task.encoding), task.arrangement)
    encode(["a"])  # some load more with the first text
    return encode


_in_worker: list[tuple[Encode, Barrier]] = []
"""The state of a worker process: its encoder, and the barrier where it waits for the others."""


def _start_worker(task: Task, all_ready: Barrier) -> None:
    _in_worker.append((_open(task), all_ready))


def _wait_for_others() -> None:
    """Keep a worker busy until all have started: the pool starts them on demand."""
    _in_worker[0][1].wait(START_SECONDS)


def _encode_in_worker(texts: Sequence[str]) -> Encoded:
    return _in_worker[0][0](texts)


def _peak_bytes(pid: int) -> int:
    """Largest resident memory of a process so far; what it is now, where the system says no more.

    `ru_maxrss` is no help: on Linux it begins with the memory of the process that started it.
    """
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(psutil.Process(pid).memory_info().rss)


def main() -> None:
    """Do the task in the folder that the command line names."""
    folder = Path(sys.argv[1])
    task = msgspec.json.decode((folder / "task.json").read_bytes(), type=Task)
    (folder / "result.json").write_bytes(msgspec.json.encode(measure(task)))


if __name__ == "__main__":
    main()

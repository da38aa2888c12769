"""Measure the bound: how fast an engine alone encodes, with its best call pattern.

The documents are already in memory, in the best form for the engine, and its results are dropped.
Loading documents and tokenizer does not count. No pipeline with this engine can be faster on this
machine, so `compare.py` divides the time of a whole build by this bound.

- gigatoken: batches as Arrow large_string, handed over without a copy through awkward,
  `encode_batch(parallel=False)`, one Tokenizer per thread (or per process).
- fastokens: batches as list[str], `encode_batch_flat`, one process per core with
  FASTOKENS_BPE_THREADS=1 (or one Tokenizer per thread).

Each measurement is a fresh process, so the engine's caches start empty. Workers take the next batch
from a common counter. Measurements decide which arrangement and batch size is best:

    pip install gigatoken==0.10.0
    python bench/bound.py --tokenizer tokenizer.json DATA/jsonl/*.jsonl
    python bench/bound.py --tokenizer tokenizer.json --engine gigatoken --mode threads \\
        --batch-mb 8 --rounds 3 --json DATA/jsonl/*.jsonl
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import measure
from corpus import documents_of_jsonl

MODES = ("threads", "processes")
ENGINES = ("gigatoken", "fastokens")


def texts(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return list(pq.read_table(path, columns=["text"])["text"].to_pylist())
    return [document["text"] for document in documents_of_jsonl([path])]


def load_batches(paths: Sequence[Path], batch_bytes: int) -> tuple[list[list[str]], int]:
    """All documents, in batches of about `batch_bytes` of UTF-8; also the size of everything."""
    batches: list[list[str]] = [[]]
    size = total = 0
    for path in paths:
        for text in texts(path):
            length = len(text.encode())
            if size + length > batch_bytes and batches[-1]:
                batches.append([])
                size = 0
            batches[-1].append(text)
            size += length
            total += length
    return batches, total


def gigatoken_encoder(tokenizer: str) -> tuple[Callable[[list[str]], Any], Callable[[Any], int]]:
    """(how a batch is prepared, how it is encoded); encoding returns the number of tokens."""
    import awkward
    import gigatoken

    engine = gigatoken.Tokenizer.from_json(tokenizer)

    def prepare(batch: list[str]) -> Any:
        return pa.array(batch, pa.large_string())

    def encode(batch: Any) -> int:
        encoded = engine.encode_batch(awkward.from_arrow(batch), parallel=False)
        return len(encoded.layout.content.data)

    return prepare, encode


def fastokens_encoder(tokenizer: str) -> tuple[Callable[[list[str]], Any], Callable[[Any], int]]:
    from fastokens import Tokenizer

    engine = Tokenizer.from_json_str(tokenizer)

    def encode(batch: list[str]) -> int:
        ids, _ = engine.encode_batch_flat(batch)
        return len(ids) // 4

    return list, encode


ENCODERS = {"gigatoken": gigatoken_encoder, "fastokens": fastokens_encoder}


def warm_encoder(engine: str, tokenizer: str) -> tuple[Callable[..., Any], Callable[..., int]]:
    """An encoder after one tiny call, so that imports and lazy set-up are not counted."""
    prepare, encode = ENCODERS[engine](tokenizer)
    encode(prepare(["warm", "up"]))
    return prepare, encode


def in_threads(
    engine: str, tokenizer: str, batches: list[list[str]], workers: int
) -> dict[str, float]:
    """Encode with one engine object per thread of this process."""
    encoders = [warm_encoder(engine, tokenizer) for _ in range(workers)]
    prepared = [encoders[0][0](batch) for batch in batches]
    batches.clear()
    turn = iter(range(len(prepared)))
    tokens = [0] * workers

    def work(worker: int) -> None:
        encode = encoders[worker][1]
        for index in turn:
            tokens[worker] += encode(prepared[index])

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    cpu, started = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu,
        "tokens": sum(tokens),
    }


def _process(
    engine: str,
    tokenizer: str,
    paths: list[Path],
    batch_bytes: int,
    turn: Any,
    start: Any,
    results: Any,
) -> None:
    prepare, encode = warm_encoder(engine, tokenizer)
    prepared = [prepare(batch) for batch in load_batches(paths, batch_bytes)[0]]
    tokens = 0
    start.wait()
    cpu = time.process_time()
    while True:
        with turn.get_lock():
            index, turn.value = turn.value, turn.value + 1
        if index >= len(prepared):
            break
        tokens += encode(prepared[index])
    results.put((tokens, time.process_time() - cpu))


def in_processes(
    engine: str, tokenizer: str, paths: list[Path], batch_bytes: int, workers: int
) -> dict[str, float]:
    """Encode in fresh processes; each has every document, and takes the next batch in turn."""
    os.environ["FASTOKENS_BPE_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    turn, results = context.Value("q", 0), context.SimpleQueue()
    start = context.Barrier(workers + 1)
    processes = [
        context.Process(
            target=_process,
            args=(engine, tokenizer, paths, batch_bytes, turn, start, results),
            daemon=True,
        )
        for _ in range(workers)
    ]
    for process in processes:
        process.start()
    start.wait()
    started = time.perf_counter()
    answers = [results.get() for _ in processes]
    seconds = time.perf_counter() - started
    for process in processes:
        process.join()
    return {
        "seconds": seconds,
        "cpu_seconds": sum(cpu for _, cpu in answers),
        "tokens": sum(tokens for tokens, _ in answers),
    }


def measure_here(options: argparse.Namespace) -> None:
    """The body of one fresh process: print one measurement as JSON."""
    tokenizer = options.tokenizer.read_text("utf-8")
    batch_bytes = int(options.batch_mb[0] * 1e6)
    engine, mode = options.engine[0], options.mode[0]
    batches, total = load_batches(options.inputs, batch_bytes)
    documents = sum(map(len, batches))
    if mode == "threads":
        found = in_threads(engine, tokenizer, batches, options.workers)
    else:
        batches.clear()
        found = in_processes(engine, tokenizer, options.inputs, batch_bytes, options.workers)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"engine": engine, "mode": mode, "batch_mb": options.batch_mb[0], **found}
    print(json.dumps({**figures, "bytes": total, "documents": documents, "peak_bytes": peak}))


def bound(
    inputs: Sequence[Path],
    tokenizer: Path,
    engine: str,
    mode: str,
    batch_mb: float,
    workers: int,
) -> dict[str, Any]:
    """One measurement in a fresh process; used by `compare.py` too."""
    command = [sys.executable, str(Path(__file__).resolve()), "--once"]
    command += ["--engine", engine, "--mode", mode, "--batch-mb", str(batch_mb)]
    command += ["--tokenizer", str(tokenizer), "--workers", str(workers), *map(str, inputs)]
    return dict(json.loads(measure.run(command, hz=0).output.splitlines()[-1]))


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("inputs", nargs="+", type=Path, help=".jsonl, .jsonl.zst, .gz, .parquet")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--batch-mb", nargs="+", type=float, default=[8.0])
    parser.add_argument("--workers", type=int, default=cores)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        measure_here(options)
        return

    kinds = [(e, m, b) for e in options.engine for m in options.mode for b in options.batch_mb]
    runs: dict[tuple[str, str, float], list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind in kinds:
            runs[kind].append(bound(options.inputs, options.tokenizer, *kind, options.workers))
    if options.json:
        print(json.dumps([run for group in runs.values() for run in group]))
        return
    rows = []
    for (engine, mode, batch_mb), group in runs.items():
        seconds = statistics.median(run["seconds"] for run in group)
        cpu = statistics.median(run["cpu_seconds"] for run in group)
        speed = f"{group[0]['bytes'] / 1e6 / seconds:.0f}"
        rows.append([f"{engine}, {mode}, {batch_mb:g} MB", f"{seconds:.2f}", speed, f"{cpu:.2f}"])
    print(json.dumps({**measure.machine(), **measure.versions([*ENGINES, "pyarrow"])}))
    print(measure.table(["engine, arrangement, batch", "seconds", "MB/s", "CPU s"], rows))


if __name__ == "__main__":
    main()

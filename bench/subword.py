"""Compare tokenmill's subword sampler with the dropout of `tokenizers`, on one core.

Both read the same documents from memory, in one process and one thread, and take turns. The
library's generator cannot be seeded. It also draws for merges that have become impossible, so it
skips fewer merges. Compare bytes of text per second, not tokens.

With --stream, it also measures a `TextStream` over the files: batches per second, the size of its
state, and the time to resume. With --ranks, it measures ranks of `text_loader` instead: the CPU
time of the busiest one, and whether all rows are the same.

    python bench/subword.py --tokenizers gpt2.json llama2.json --corpus corpus/*.jsonl.zst
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import measure
import tokenmill


def read(paths: list[Path], num_bytes: int) -> list[str]:
    """Documents from the start of the files."""
    from tokenmill.load.text.pieces import BatchPlace, TextCorpus
    from tokenmill.read.fields import Fields

    texts: list[str] = []
    for _, batch in TextCorpus([str(path) for path in paths], Fields()).read(BatchPlace(0, 0)):
        for text in batch.texts:
            texts.append(text)
            num_bytes -= len(text.encode())
            if num_bytes <= 0:
                return texts
    return texts


def contenders(path: Path, texts: list[str], dropout: float) -> dict[str, Callable[[], int]]:
    """What encodes all documents, and returns the number of tokens."""
    import tokenizers

    from tokenmill.encode.subword import SubwordSampler
    from tokenmill.encode.tokenizer_file import load_tokenizer_file
    from tokenmill.kernels.permutation import document_keys

    file = load_tokenizer_file(str(path))
    sampler = SubwordSampler(file, dropout=dropout)
    keys = document_keys(0, 0, np.arange(len(texts)))
    library = json.loads(file.data)
    library["model"]["dropout"] = dropout
    library["post_processor"] = None
    theirs = tokenizers.Tokenizer.from_str(json.dumps(library))
    theirs.encode_special_tokens = True

    def with_library() -> int:
        encodings = theirs.encode_batch_fast(texts, add_special_tokens=False)
        return sum(len(encoding.ids) for encoding in encodings)

    return {
        "tokenizers, dropout": with_library,
        "tokenizers, none": lambda: len(sampler.reference.encode(texts).ids),
        "tokenmill, dropout": lambda: len(sampler.encode(texts, keys).ids),
    }


def compare(path: Path, texts: list[str], options: argparse.Namespace) -> None:
    num_bytes = sum(len(text.encode()) for text in texts)

    def timed(function: Callable[[], int]) -> Callable[[], tuple[float, int]]:
        def once() -> tuple[float, int]:
            started = time.process_time()  # one thread, so other programs do not count
            tokens = function()
            return time.process_time() - started, tokens

        return once

    named = contenders(path, texts, options.dropout)
    for function in named.values():
        function()  # compiles, and fills caches
    runs = measure.interleave({n: timed(f) for n, f in named.items()}, options.rounds)
    base = [seconds for seconds, _ in runs["tokenizers, dropout"]]
    rows = []
    for name, group in runs.items():
        seconds = statistics.median(each for each, _ in group)
        tokens = group[0][1]
        rows.append(
            [
                name,
                f"{seconds:.2f}",
                f"{num_bytes / seconds / 1e6:.2f}",
                f"{tokens / seconds / 1e6:.2f}",
                f"{tokens:,}",
                f"{measure.ratio(base, [each for each, _ in group]):.2f}",
            ]
        )
    print(f"\n## {path.stem}: {len(texts):,} documents, {num_bytes / 1e6:.1f} MB\n")
    header = ["encoder", "CPU s", "MB/s", "M tokens/s", "tokens", "x tokenizers, dropout"]
    print(measure.table(header, rows), flush=True)


def resume(path: Path, options: argparse.Namespace) -> None:
    """Run a stream, and resume it at some batches."""
    from tokenmill.load.text.stream import TextStream, TextStreamOptions

    made = TextStreamOptions(sequence_length=2048, global_batch_size=16, dropout=options.dropout)
    inputs = [str(each) for each in options.corpus]
    stream = TextStream(inputs, str(path), made)
    states: list[str] = []
    tokens, started = 0, time.perf_counter()
    for count, rows in enumerate(stream):
        tokens += int(rows.real.sum())
        if count % 100 == 50:
            states.append(json.dumps(stream.state_dict()))
        if count == options.stream:
            break
    rate = tokens / (time.perf_counter() - started) / 1e6
    seconds = []
    for state in states:
        again = TextStream(inputs, str(path), made)
        started = time.perf_counter()
        again.load_state_dict(json.loads(state))
        next(again)
        seconds.append(time.perf_counter() - started)
    print(
        f"\nstream of {path.stem}: {rate:.2f} M tokens/s; state {max(map(len, states)):,} bytes; "
        f"resume to the next batch {statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s"
    )


def rank_of_text(
    rank: int, ranks: int, shared: bool, path: Path, options: argparse.Namespace, found: Any
) -> None:
    """Take batches as one of several ranks; put its CPU and wall time, and hashes of its rows."""
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", store=dist.FileStore(options.store), rank=rank, world_size=ranks
    )
    loader = tokenmill.text_loader(
        options.corpus,
        path,
        sequence_length=2048,
        global_batch_size=16,
        dropout=options.dropout,
        rank=rank,
        world_size=ranks,
        group=dist.group.WORLD if shared else None,
        columns=("input_ids",),
    )
    batches = iter(loader)
    next(batches)
    started = time.process_time(), time.perf_counter()
    rows = [
        hash(row.numpy().tobytes())
        for batch in islice(batches, options.stream)
        for row in batch["input_ids"]
    ]
    seconds = time.process_time() - started[0], time.perf_counter() - started[1]
    found.put((rank, *seconds, rows))
    dist.destroy_process_group()


def ranks(path: Path, options: argparse.Namespace) -> None:
    """Compare ranks that encode everything with ranks that share it."""
    os.environ["PYTHONHASHSEED"] = "0"  # rows are compared by their hashes
    context = multiprocessing.get_context("spawn")
    table, wanted = [], None
    for number in options.ranks:
        for shared in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                options.store = f"{folder}/store"
                found = context.Queue()
                arguments = [(rank, number, shared, path, options, found) for rank in range(number)]
                processes = [context.Process(target=rank_of_text, args=each) for each in arguments]
                for process in processes:
                    process.start()
                parts = sorted(found.get() for _ in processes)
                for process in processes:
                    process.join()
            own = [np.reshape(rows, (options.stream, -1)) for *_, rows in parts]
            rows = np.concatenate(own, axis=1).tolist()
            wanted = wanted or rows
            cpu = max(seconds for _, seconds, *_ in parts)
            rate = options.stream * 16 * 2048 / cpu / 1e6
            same = "yes" if rows == wanted else "NO"
            table.append(
                [f"{number}", "shared" if shared else "all", f"{cpu:.2f}", f"{rate:.2f}", same]
            )
    print(f"\n## {path.stem}: {options.stream} batches of 16 rows of 2,048\n")
    header = ["ranks", "encoding", "CPU s, busiest rank", "M tokens/s of its CPU", "same rows"]
    print(measure.table(header, table), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizers", type=Path, nargs="+", required=True)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stream", type=int, default=0, metavar="BATCHES")
    parser.add_argument("--ranks", type=int, nargs="*", metavar="NUMBER", help="of text_loader")
    options = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    print(measure.machine(), measure.versions(["tokenmill", "tokenizers", "numpy", "numba"]))
    if options.ranks:
        for path in options.tokenizers:
            ranks(path, options)
        return
    texts = read(options.corpus, int(options.megabytes * 1e6))
    for path in options.tokenizers:
        compare(path, texts, options)
        if options.stream:
            resume(path, options)


if __name__ == "__main__":
    main()

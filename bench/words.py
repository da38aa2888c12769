"""Compare finding and counting words with the splitters of `encode/words.py` and gigatoken.

Every contender is a separate process with the texts in memory. It reports the CPU seconds of
counting, the number of words, and a digest of their counts. gigatoken supports only GPT-2's words
and returns a Python list; the time includes making the list. `--without gigatoken` leaves it out.

    pip install gigatoken==0.10.0
    python bench/words.py --corpus DATA/*.jsonl.zst --split gpt2 --rounds 3
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from measure import CommandFailed, interleave, machine, run, table, versions
from tokenmill.encode.splitters import load_splitter, word_splitters
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import SPLITS, named_split
from tokenmill.encode.words.table import WordTable

BATCH_BYTES = 1 << 20
CACHE_BYTES = 1 << 28
GIGATOKEN = "gigatoken"


def texts_of(paths: Sequence[str]) -> list[str]:
    """The texts of JSON lines, compressed or not."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    texts = []
    for path in paths:
        with zstd.open(path, "rb") if path.endswith(".zst") else Path(path).open("rb") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    return texts


def batches(texts: Sequence[str]) -> list[list[str]]:
    """Texts in groups of about `BATCH_BYTES`, as the reader hands them over."""
    groups: list[list[str]] = [[]]
    size = 0
    for text in texts:
        if size > BATCH_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(text)
        size += len(text)
    return groups


def by_splitter(split: str, name: str, texts: Sequence[str]) -> Callable[[], WordCounts]:
    """Counting by one of our splitters."""
    splitter = load_splitter(named_split(split), name, CACHE_BYTES)
    words = WordTable()
    splitter.count(["It's a warm-up."], words)  # compiles, or loads what is compiled
    words.take()
    groups = batches(texts)

    def count() -> WordCounts:
        words = WordTable()
        for group in groups:
            splitter.count(group, words)
        return words.take()

    return count


def by_gigatoken(texts: Sequence[str]) -> Callable[[], WordCounts]:
    """Counting by gigatoken: texts joined by a byte that none holds."""
    from gigatoken.gigatoken_rs import pretokenized_counts

    joined = b"\xff".join(text.encode() for text in texts)

    def count() -> WordCounts:
        return WordCounts.of(dict(pretokenized_counts(joined, b"\xff")))

    return count


def contend(split: str, name: str, paths: Sequence[str]) -> None:
    """Count once and print what it took."""
    texts = texts_of(paths)
    count = by_gigatoken(texts) if name == GIGATOKEN else by_splitter(split, name, texts)
    wall, cpu = time.perf_counter(), time.process_time()
    counts = count()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    digest = hashlib.sha256(counts.data.tobytes() + counts.counts.tobytes()).hexdigest()
    found = [len(counts), counts.num_occurrences, digest[:12]]
    size = sum(len(text.encode()) for text in texts)
    print(json.dumps({"bytes": size, "wall": wall, "cpu": cpu, "found": found}))


def measured(split: str, name: str, paths: Sequence[str]) -> dict[str, float]:
    """Run a contender in a process of its own."""
    command = [sys.executable, __file__, "--split", split, "--contender", name, "--corpus", *paths]
    result = run(command, hz=0)
    answer: dict[str, float] = json.loads(result.output.splitlines()[-1])
    return answer


def main() -> None:
    """Print a table for each split."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", nargs="+", required=True)
    parser.add_argument("--split", default="gpt2", help=f"of {', '.join(SPLITS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without", nargs="*", default=[], help="contenders to leave out")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    options = parser.parse_args()
    paths = [str(Path(path)) for path in options.corpus]
    if options.contender:
        contend(options.split, options.contender, paths)
        return
    names = [*word_splitters(named_split(options.split))]
    names += [GIGATOKEN] if options.split == "gpt2" else []
    contenders = {
        name: lambda name=name: measured(options.split, name, paths)
        for name in names
        if name not in options.without
    }
    results = interleave(contenders, options.rounds)
    if len({str(result["found"]) for runs in results.values() for result in runs}) > 1:
        raise CommandFailed(f"the counts differ: {results}")
    first = results[names[0]]
    rows = []
    for name, runs in results.items():
        cpu = statistics.median(result["cpu"] for result in runs)
        ratios = [result["cpu"] / ours["cpu"] for result, ours in zip(runs, first, strict=True)]
        rate = runs[0]["bytes"] / 1e6 / cpu
        wall = statistics.median(result["wall"] for result in runs)
        ratio = statistics.median(ratios)
        rows.append([name, f"{cpu:.2f}", f"{wall:.2f}", f"{rate:.1f}", f"{ratio:.2f}"])
    print(machine(), versions(["tokenizers", "gigatoken", "numba", "numpy"]))
    print(
        f"{options.split}: {first[0]['bytes'] / 1e6:.1f} MB; words, occurrences, digest: ", end=""
    )
    print(*first[0]["found"])
    print(table([options.split, "CPU s", "wall s", "MB per CPU s", "CPU, ratio"], rows))


if __name__ == "__main__":
    main()

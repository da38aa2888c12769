"""Compare word counting with gigatoken on the same text, and measure how the time grows.

tokenmill reads the files, checks its splitter against the library, counts in units with receipts,
and writes sorted counts. gigatoken gets the same files decompressed and parsed, joined in memory,
and counts them in one call. Its words and counts must be equal.

For the slope, variants of the corpus are written as .jsonl.zst. In variant k, the letters of every
third word are rotated by k, so that each variant has different words.

    pip install gigatoken==0.10.0
    python bench/count.py DATA/*.jsonl.zst --rounds 3 --variants 3 7
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import measure

COUNT = """
import sys
import tokenmill
out, workers, memory, *inputs = sys.argv[1:]
counts = tokenmill.count_words(
    inputs, out, split="gpt2", workers=int(workers), memory=memory, overwrite=True).counts
(group,) = counts.manifest.groups
print(group.words, group.occurrences)
"""
PEER = """
import json
import sys
from backports import zstd
from gigatoken.gigatoken_rs import pretokenized_counts
texts = []
for path in sys.argv[1:]:
    with zstd.open(path, "rb") as lines:
        texts += [json.loads(line)["text"] for line in lines]
found = pretokenized_counts("\\x1e".join(texts).encode(), b"\\x1e")
counts = [count for _, count in (found.items() if isinstance(found, dict) else found)]
print(len(counts), sum(counts))
"""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("inputs", nargs="+", type=Path, help=".jsonl.zst files with a text field")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="1.5GB")
    parser.add_argument("--variants", type=int, nargs="*", default=[], help="for the slope")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()

    print(measure.machine())
    print(measure.versions(["tokenmill", "tokenizers", "gigatoken", "numba", "numpy"]))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _count(root / "warm", 1, options.memory, options.inputs[:1])  # compiles
        side_by_side(options, root)
        for number in options.variants:
            slope(number, options, root)


def side_by_side(options: argparse.Namespace, root: Path) -> None:
    """One worker, two workers and the peer, in turns."""
    contenders = {
        f"{workers} worker{'s' * (workers > 1)}": lambda workers=workers: _count(
            root / "out", workers, options.memory, options.inputs
        )
        for workers in (1, 2)
    }
    if not options.no_peer:
        contenders["gigatoken"] = lambda: measure.run(
            [sys.executable, "-c", PEER, *map(str, options.inputs)]
        )
    measure.warm(options.inputs)
    runs = measure.interleave(contenders, options.rounds)
    found = {name: of[0].output.split()[-2:] for name, of in runs.items()}
    print(f"unique words and occurrences: {found}")
    assert len({tuple(counts) for counts in found.values()}) == 1, "the counts differ"
    rows = [[name, *_figures(of)] for name, of in runs.items()]
    print(measure.table(["", "wall s", "CPU s", "peak MB"], rows))
    if not options.no_peer:
        for name in list(runs)[:-1]:
            ours, theirs = ([run.cpu_seconds for run in runs[n]] for n in (name, "gigatoken"))
            print(f"CPU, {name} / gigatoken: {measure.ratio(ours, theirs):.2f}")


def slope(number: int, options: argparse.Namespace, root: Path) -> None:
    """The corpus and so many variants of it."""
    inputs = [*options.inputs, *_variants(options.inputs, number, root)]
    run = _count(root / "out", 2, options.memory, inputs)
    words, occurrences = map(int, run.output.split()[-2:])
    print(
        f"corpus x {number + 1}: {run.seconds:.1f} s, {run.cpu_seconds:.1f} CPU s, "
        f"{run.peak_bytes / 1e6:.0f} MB, {words:,} unique words of {occurrences:,}"
    )


def _count(out: Path, workers: int, memory: str, inputs: Sequence[Path]) -> measure.Run:
    arguments = [str(out), str(workers), memory, *map(str, inputs)]
    return measure.run([sys.executable, "-c", COUNT, *arguments])


def _figures(runs: Sequence[measure.Run]) -> list[str]:
    return [
        f"{statistics.median(run.seconds for run in runs):.1f}",
        f"{statistics.median(run.cpu_seconds for run in runs):.1f}",
        f"{statistics.median(run.peak_bytes for run in runs) / 1e6:.0f}",
    ]


def _variants(inputs: Sequence[Path], number: int, root: Path) -> Iterator[Path]:
    """Write variants of all files that are not there yet."""
    from backports import zstd

    for shift, path in itertools.product(range(1, number + 1), inputs):
        variant = root / f"variant-{shift}-{path.name}"
        if not variant.exists():
            table = str.maketrans(LETTERS, LETTERS[shift:] + LETTERS[:shift])
            with zstd.open(path, "rb") as lines, zstd.open(variant, "wb") as out:
                for line in lines:
                    text = _rotated(json.loads(line)["text"], table)
                    out.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
        yield variant


def _rotated(text: str, table: dict[int, int]) -> str:
    turns = itertools.cycle((True, False, False))
    return re.sub("[a-z]+", lambda word: word[0].translate(table) if next(turns) else word[0], text)


if __name__ == "__main__":
    main()

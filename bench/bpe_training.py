"""Compare BPE training of tokenmill and other trainers on the same text.

    python bench/bpe_training.py DATA/*.jsonl.zst --peers-python VENV/bin/python
    python bench/bpe_training.py --generated 39e6            # merges alone, on generated words

Every contender is a whole process, from .zst files to its tokens. `gigabpe` reads lines of a text
file, which is written for it beforehand. Documents with words over 100,000 bytes are left out,
because two contenders take minutes for each; `--with-long-words` keeps them. Tokens and their order
are compared with those of tokenmill.

--generated measures the merge step alone, on this many unique words. Their lengths, parts and
counts follow those of DATA: prefixes of real words are joined to suffixes of others. Half of them
occur once; `--min-count 2` leaves those out.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import measure

LONGEST_WORD = 100_000
GROWTH = 1.55
"""log 2 / log 1.565: unique words grow by 1.565 with each doubling of the corpus."""
PEERS = ("tokenizers", "gigabpe", "rustbpe", "bpeasy", "sentencepiece")
HERE = Path(__file__).parent


def documents(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        out = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True).stdout
        yield from (json.loads(line)["text"] for line in out.splitlines())


def prepare(paths: Sequence[Path], folder: Path, long_words: bool) -> int:
    """Write one corpus for all, as .jsonl.zst and as text; its size in bytes."""
    size = 0
    with open(folder / "corpus.jsonl", "w") as records, open(folder / "corpus.txt", "w") as lines:
        for text in documents(paths):
            if long_words or max(map(len, text.split()), default=0) <= LONGEST_WORD:
                records.write(json.dumps({"text": text}) + "\n")
                lines.write(text + "\n")
                size += len(text.encode())
    subprocess.run(["zstd", "-q", "--rm", str(folder / "corpus.jsonl")], check=True)
    return size


def tokens_of(tokenizer: Path) -> list[str]:
    """What the merges of a byte-level tokenizer.json make, as Latin-1 strings of bytes."""
    from tokenmill.encode.encodings import byte_symbols

    byte_of = {character: chr(byte) for byte, character in enumerate(byte_symbols())}
    merges = json.loads(tokenizer.read_text())["model"]["merges"]
    joined = ["".join(m) if isinstance(m, list) else m.replace(" ", "") for m in merges]
    return ["".join(byte_of[character] for character in token) for token in joined]


def compare(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        size = prepare(options.inputs, folder, options.with_long_words)
        zst, vocabulary = folder / "corpus.jsonl.zst", str(options.vocabulary)
        ours = [sys.executable, "-m", "tokenmill", "tokenizer", "train", str(zst)]
        ours += ["--split", "gpt2", "--vocabulary", vocabulary, "--out", str(folder / "T")]
        commands = {"tokenmill": [*ours, "--overwrite", "--workers", str(options.workers)]}
        installed = measure.versions(PEERS, options.peers_python)
        for name in PEERS:
            if name not in installed:
                print(f"{name} is not installed there and left out")
            elif name not in options.without:
                source = folder / "corpus.txt" if name == "gigabpe" else zst
                script = [options.peers_python, str(HERE / "peers" / "train_bpe.py"), name]
                out = ["--vocabulary", vocabulary, "--out", str(folder / f"{name}.json")]
                commands[name] = [*script, str(source), *out]
        measure.run(commands["tokenmill"])  # compiles
        contenders = {name: lambda c=c: measure.run(c) for name, c in commands.items()}
        runs = measure.interleave(contenders, options.rounds)
        found = {name: json.loads((folder / f"{name}.json").read_text()) for name in [*runs][1:]}
        expected = tokens_of(folder / "T" / "tokenizer.json")
    print(measure.machine())
    print(installed)
    print(f"{size / 1e6:.1f} MB, vocabulary of {options.vocabulary:,}")
    rows = []
    for name, group in runs.items():
        cpu = sorted(run.cpu_seconds for run in group)[len(group) // 2]
        tokens = found.get(name, expected)
        pairs = enumerate(zip(tokens, expected, strict=False))
        equal = next((i for i, (theirs, ours) in pairs if theirs != ours), len(tokens))
        shared = len(set(tokens) & set(expected))
        peak = max(run.peak_bytes for run in group) / 1e6
        seconds = measure.median_seconds(group)
        figures = [f"{seconds:.1f}", f"{cpu:.1f}", f"{peak:,.0f}"]
        rows.append([name, *figures, f"{equal:,} of {len(tokens):,}", f"{shared:,}"])
    header = ["trainer", "seconds", "CPU s", "peak MB", "first tokens equal", "tokens in common"]
    print(measure.table(header, rows))


def generated_words(paths: Sequence[Path], number: int, min_count: int):
    """Unique words like those of a corpus `number / unique words` times as large, about."""
    from tokenmill.encode.splitters import load_splitter, word_splitters
    from tokenmill.encode.words.counts import WordCounts
    from tokenmill.encode.words.splits import named_split
    from tokenmill.encode.words.table import WordTable

    split, table = named_split("gpt2"), WordTable()
    splitter = load_splitter(split, word_splitters(split)[0], 1 << 28)
    for path in paths:
        splitter.count([t for t in documents([path]) if len(t) <= 4 * LONGEST_WORD], table)
    real = table.take()
    random = np.random.default_rng(0)
    # A word occurs c times or more with probability 1 / c, about.
    counts = np.minimum(1 / (1 - random.random(number)), 1e12).astype(np.int64)
    counts[: len(real)] = real.counts * max(int((number / len(real)) ** GROWTH), 1)
    counts = counts[counts >= min_count]
    sizes = np.diff(real.offsets)
    made, lengths = [real.data], [sizes]
    for start in range(len(real), len(counts), 1 << 20):
        num_words = min(1 << 20, len(counts) - start)
        first, second = random.integers(0, len(real), (2, num_words))
        heads = (random.random(num_words) * (np.minimum(sizes[first], 16) + 1)).astype(np.int64)
        tails = np.minimum(sizes[second], 16) - heads // 2
        tails = np.maximum(tails, 1)
        tails = np.minimum(tails, sizes[second])
        lengths.append(heads + tails)
        both = np.stack([heads, tails], axis=1).ravel()
        begins = np.stack([real.offsets[first], real.offsets[second + 1] - tails], axis=1).ravel()
        before = np.cumsum(both) - both
        made.append(real.data[np.repeat(begins - before, both) + np.arange(both.sum())])
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return WordCounts(np.concatenate(made), offsets, counts)


def merge_generated(options: argparse.Namespace) -> None:
    from tokenmill.vocabulary.bpe.learning import learn_merges
    from tokenmill.vocabulary.bpe.merges import MergeOptions
    from tokenmill.vocabulary.bpe.symbols import byte_symbols

    words = generated_words(options.inputs, int(options.generated), options.min_count)
    before = resource.getrusage(resource.RUSAGE_SELF)
    print(measure.machine())
    print(
        f"{len(words):,} words, {len(words.data) / 1e6:,.0f} MB, {words.num_occurrences:,} "
        f"occurrences; {before.ru_maxrss / 1e6:.2f} GB before merging"
    )
    started = time.perf_counter()
    limits = MergeOptions(vocabulary_size=options.vocabulary)
    merges = learn_merges(words, byte_symbols(), limits)
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"{len(merges):,} merges, the last of {merges.masses[-1]:,}: "
        f"{time.perf_counter() - started:.1f} s, "
        f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.1f} CPU s, "
        f"peak {after.ru_maxrss / 1e6:.2f} GB, {merges.num_tokens():,} tokens"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("inputs", type=Path, nargs="+", help=".jsonl.zst files")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--without", nargs="*", default=[], choices=PEERS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--with-long-words", action="store_true")
    parser.add_argument("--generated", type=float, metavar="WORDS")
    parser.add_argument("--min-count", type=int, default=1)
    options = parser.parse_args()
    if options.generated:
        merge_generated(options)
    else:
        compare(options)


if __name__ == "__main__":
    main()

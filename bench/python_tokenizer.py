"""Compare builds with a Python tokenizer on one process, half the cores and all cores.

One tokenizer is ByT5's from `transformers`; the other is a few lines of Python that look up every
character. Both hold the GIL, so threads would not help. The loop runs the tokenizer alone over the
same documents, in one process, without start-up, reading or writing. Builds are whole commands,
including start-up, and their ids must be equal. Runs take turns.

    python bench/python_tokenizer.py --corpus corpus/*.jsonl.zst --work WORK
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import measure
from subword import read

HERE = Path(__file__).resolve().parent
TOKENIZERS = {
    "characters": "python:python_tokenizer:Characters",
    "ByT5": "python:transformers:ByT5Tokenizer",
}


class Characters:
    """Lower-cases and looks up every character."""

    vocab_size = 1 << 17
    eos_token = "<end>"
    eos_token_id = 0

    def encode(self, text: str) -> list[int]:
        ids = []
        for character in text:
            if character.isupper():
                ids.append(1)
            ids.append(2 + ord(character.lower()[0]) % (self.vocab_size - 2))
        return ids


def build(spec: str, data: Path, out: Path, workers: int) -> Callable[[], float]:
    """Seconds of a whole command."""
    arguments = [str(data), "--tokenizer", spec, "--out", str(out), "--workers", str(workers)]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}

    def once() -> float:
        shutil.rmtree(out, ignore_errors=True)
        return measure.run(
            [sys.executable, "-m", "tokenmill", "build", *arguments], environment, hz=0
        ).seconds

    return once


def loop(spec: str, texts: list[str]) -> Callable[[], float]:
    """Seconds of the tokenizer alone."""
    from tokenmill.encode.kinds import load_reference
    from tokenmill.encode.tokenizer_file import load_tokenizer_file

    reference = load_reference(load_tokenizer_file(spec), False)

    def once() -> float:
        started = time.perf_counter()
        reference.encode(texts)
        return time.perf_counter() - started

    return once


def token_bytes(out: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((out / "tokens").glob("*.bin"))]


def compare(name: str, texts: list[str], options: argparse.Namespace) -> None:
    spec, data = TOKENIZERS[name], options.work / "data.jsonl"
    cores = len(os.sched_getaffinity(0))
    counts = sorted({1, max(cores // 2, 1), cores})
    outs = {f"build, workers {count}": options.work / f"{name}-{count}" for count in counts}
    contenders = {
        label: build(spec, data, out, count)
        for (label, out), count in zip(outs.items(), counts, strict=True)
    }
    contenders["loop"] = loop(spec, texts)
    runs = measure.interleave(contenders, options.rounds)
    written = [token_bytes(out) for out in outs.values()]
    if any(each != written[0] for each in written):
        raise SystemExit("builds with other numbers of workers wrote other ids")
    num_bytes = sum(len(text.encode()) for text in texts)
    rows = []
    for label, seconds in runs.items():
        median = statistics.median(seconds)
        rows.append(
            [
                label,
                f"{median:.1f}",
                f"{len(texts) / median:,.0f}",
                f"{num_bytes / median / 1e6:.2f}",
                f"{measure.ratio(runs['build, workers 1'], seconds):.2f}",
                f"{measure.ratio(runs['loop'], seconds):.2f}",
            ]
        )
    print(f"\n## {name}: {len(texts):,} documents, {num_bytes / 1e6:.1f} MB\n")
    header = ["", "s", "documents/s", "MB/s", "x build, workers 1", "x loop"]
    print(measure.table(header, rows), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--megabytes", type=float, default=32.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(measure.machine(), measure.versions(["tokenmill", "transformers", "numpy"]))
    texts = read(options.corpus, int(options.megabytes * 1e6))
    options.work.mkdir(parents=True, exist_ok=True)
    with open(options.work / "data.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    for name in TOKENIZERS:
        compare(name, texts, options)


if __name__ == "__main__":
    main()

"""Measure `tokenmill report` on a dataset of many documents, against a report of one of its shards.

    python bench/report.py --documents 100000000

The dataset is one built shard under many names (hard links), so that it needs little room on disk
and is read like any other. The page of the single shard shows what does not depend on the size.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec

import tokenmill
from measure import machine, median_seconds, run
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import Counts, FileEntry, dataset_id, write_manifest

SHARDS = 4096


def main() -> None:
    """Make both datasets, plan the large one, and report on each."""
    options = parse_options(__doc__, documents=100_000_000, rounds=3)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        one, many = Path(folder, "one"), Path(folder, "many")
        build_shard(one, options.documents // SHARDS, options.tokenizer)
        repeat(one, many)
        found = Dataset(many)
        print(f"{found.num_documents:,} documents, {found.num_tokens:,} tokens, {SHARDS:,} shards")
        for name in (one, many):
            page = Path(folder, f"{name.name}.html")
            command = [sys.executable, "-m", "tokenmill", "report", str(name), "--out", str(page)]
            runs = [run(command) for _ in range(options.rounds)]
            seconds = median_seconds(runs)
            cpu = statistics.median(each.cpu_seconds for each in runs)
            peak = max(each.peak_bytes for each in runs) / 1e6
            size = page.stat().st_size / 1e6
            times = f"{seconds:6.1f} s, {cpu:.1f} s of CPU"
            print(f"{name.name:<5} {times}, {peak:5.0f} MB of memory, page {size:.2f} MB")


def parse_options(description: str | None, documents: int, rounds: int) -> argparse.Namespace:
    """The options of benchmarks on many documents, with these defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--documents", type=int, default=documents)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser.parse_args()


def build_shard(out: Path, documents: int, tokenizer: str, **options: object) -> None:
    """Build one shard of documents of 1 to 4,000 words, short ones more often, with ids."""
    draw = random.Random(0)
    words = ["river", "stone", "winter", "light", "paper", "window", "salt", "and", "the", "of"]
    source = out.with_suffix(".jsonl")
    with source.open("wb") as lines:
        for number in range(documents):
            count = min(int(draw.paretovariate(0.9) * 20), 4000)
            text = " ".join(draw.choices(words, k=count))
            record = {"text": text, "id": f"document-{number}", "lang": ("de", "en")[number % 2]}
            lines.write(msgspec.json.encode(record) + b"\n")
    tokenmill.build([str(source)], tokenizer=tokenizer, out=str(out), **options)


def repeat(one: Path, many: Path) -> None:
    """Write a dataset that has the first shard of another one many times."""
    dataset = Dataset(one)
    shard, rest = dataset.manifest.shards[0], dataset.manifest
    shards = []
    for number in range(SHARDS):
        files = [_linked(one, many, file, f"{number:05d}") for file in shard.files]
        shards.append(msgspec.structs.replace(shard, files=files))
    for file in rest.tokenizer.files:
        _linked(one, many, file, "")
    counts = _times(rest.totals)
    source = msgspec.structs.replace(rest.sources[0], counts=counts)
    manifest = msgspec.structs.replace(
        rest,
        shards=shards,
        totals=counts,
        sources=[source],
        rejected=[],
        dataset_id=dataset_id(shards, rest.tokenizer, rest.policies),
    )
    write_manifest(many, manifest)


def _linked(one: Path, many: Path, file: FileEntry, number: str) -> FileEntry:
    path = Path(file.name)
    name = str(path.with_name(number + path.suffix)) if number else file.name
    (many / name).parent.mkdir(parents=True, exist_ok=True)
    os.link(one / file.name, many / name)
    return msgspec.structs.replace(file, name=name)


def _times(counts: Counts) -> Counts:
    total = Counts()
    for _ in range(SHARDS):
        total.add(counts)
    return total


if __name__ == "__main__":
    main()

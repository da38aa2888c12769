"""Measure how fast a dataset of many shards opens, and compare it with a lower bound.

    python bench/open_dataset.py --shards 50000

The bound only gets the size of each file (`os.lstat`), without reading a manifest. Each shard has
one document of three tokens, which opening does not read.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xxhash

from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import block_digests
from tokenmill.store.layout import pack_index
from tokenmill.store.manifest import (
    Counts,
    ExtentEntry,
    FileEntry,
    Manifest,
    ShardEntry,
    SourceEntry,
    TokenizerEntry,
    write_manifest,
)

DTYPE = np.dtype("<u2")


def main() -> None:
    """Make the dataset, then open it in turns with the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_dataset(root, options.shards)
        names = [f"{root}/{file.name}" for file in Dataset(root).manifest.files]
        opened, bound = [], []
        for _ in range(options.rounds):
            bound.append(cpu_seconds(lambda: [os.lstat(name).st_size for name in names]))
            opened.append(cpu_seconds(lambda: Dataset(root)))
        size = (root / "manifest.json").stat().st_size
        print(f"{options.shards:,} shards, {len(names):,} files, manifest {size / 1e6:.1f} MB")
        print(f"open   {statistics.median(opened):.3f} s of CPU")
        print(f"bound  {statistics.median(bound):.3f} s of CPU: one lstat for each file")
        ratios = [one / other for one, other in zip(opened, bound, strict=True)]
        print(f"ratio  {statistics.median(ratios):.2f}")


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of a call; what it returns is freed outside of the measurement."""
    started = time.process_time()
    kept = work()
    seconds = time.process_time() - started
    del kept
    return seconds


def write_dataset(root: Path, num_shards: int) -> None:
    """A dataset of tiny shards; its documents tables are never opened here."""
    for name in ("tokens", "documents"):
        (root / name).mkdir()
    ids, index = np.array([1, 2, 0], DTYPE).tobytes(), pack_index(np.array([3]), DTYPE)
    digests = block_digests(memoryview(ids)) + block_digests(memoryview(index))
    parts = {"bin": ids, "idx": index, "xxh3": digests, "parquet": b"PAR1"}
    shards = []
    for number in range(num_shards):
        files = []
        for part, data in parts.items():
            name = f"{'documents' if part == 'parquet' else 'tokens'}/{number:05d}.{part}"
            (root / name).write_bytes(data)
            digest = xxhash.xxh3_128_hexdigest(data)
            files.append(FileEntry(name=name, bytes=len(data), xxh3_128=digest))
        extent = ExtentEntry(source=0, start=100 * number, stop=100 * number + 100)
        shards.append(ShardEntry(documents=1, tokens=3, extents=[extent], files=files))
    counts = Counts(records=num_shards, documents=num_shards, tokens=3 * num_shards)
    manifest = Manifest(
        dataset_id="0" * 32,
        token_dtype="uint16",
        tokenizer=TokenizerEntry(
            kind="huggingface",
            encoding="",
            sha256="0" * 64,
            reference="tokenizers",
            largest_id=9,
            prefix_ids=[],
            eos_id=0,
            pad_id=None,
            files=[],
        ),
        policies={"read": {}, "encode": {"special_tokens": "text"}},
        totals=counts,
        sources=[
            SourceEntry(
                name="a.jsonl",
                format="jsonl",
                compression="none",
                bytes=1,
                xxh3_128="0" * 32,
                counts=counts,
            )
        ],
        shards=shards,
        rejected=[],
    )
    write_manifest(root, manifest)


if __name__ == "__main__":
    main()

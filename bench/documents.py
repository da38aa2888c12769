"""Compare `tokenmill export --format megatron` with `cp` of the same files.

All contenders end with a sync. `--many` also exports a made dataset of as many documents with a few
tokens each, to see the memory; its shards are links to one.

    tokenmill build corpus/*.jsonl.zst --tokenizer gpt2.json --out CORPUS
    python bench/documents.py --dataset CORPUS --work WORK --many 100000000
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import measure


def many_documents(model: Path, folder: Path, documents: int) -> None:
    """Write a dataset of shards of a million documents, with the tokenizer of another dataset."""
    import msgspec

    from tokenmill.store.digests import BLOCK_BYTES, block_digests, file_digest
    from tokenmill.store.layout import pack_index
    from tokenmill.store.manifest import FileEntry, dataset_id, read_manifest, write_manifest

    manifest = read_manifest(model)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model / "tokenizer", folder / "tokenizer")
    lengths = np.random.default_rng(0).integers(1, 8, 1_000_000)
    dtype = np.dtype("<u2") if manifest.token_dtype == "uint16" else np.dtype("<i4")
    tokens = np.ones(int(lengths.sum()), dtype).tobytes()
    index = pack_index(lengths, dtype)
    blocks = block_digests(memoryview(tokens)) + block_digests(memoryview(index))
    assert BLOCK_BYTES == 65536
    table = (model / manifest.shards[0].files[3].name).read_bytes()
    parts = {"tokens/{}.bin": tokens, "tokens/{}.idx": index, "tokens/{}.xxh3": blocks}
    parts["documents/{}.parquet"] = table  # nothing reads it without a validation subset
    shards, digests = [], {}
    for number in range(documents // len(lengths)):
        files = []
        for name, data in parts.items():
            path = folder / name.format(f"{number:08d}-000000")
            if number == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                digests[name] = file_digest(path)
            else:
                os.link(folder / name.format("00000000-000000"), path)
            entry = FileEntry(
                name=path.relative_to(folder).as_posix(), bytes=len(data), xxh3_128=digests[name]
            )
            files.append(entry)
        shard = msgspec.structs.replace(
            manifest.shards[0],
            documents=len(lengths),
            tokens=int(lengths.sum()),
            files=files,
        )
        shards.append(shard)
    manifest = msgspec.structs.replace(
        manifest,
        dataset_id=dataset_id(shards, manifest.tokenizer, manifest.policies),
        shards=shards,
        rejected=[],
    )
    counts = msgspec.structs.replace(
        manifest.totals,
        records=len(shards) * len(lengths),
        documents=len(shards) * len(lengths),
        tokens=sum(shard.tokens for shard in shards),
    )
    source = msgspec.structs.replace(manifest.sources[0], counts=counts)
    manifest = msgspec.structs.replace(manifest, totals=counts, sources=[source])
    write_manifest(folder, manifest)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=0)
    options = parser.parse_args()
    print(measure.machine(), measure.versions(["tokenmill", "numpy"]))
    options.work.mkdir(parents=True, exist_ok=True)
    out, model = options.work / "out", options.work / "model"

    def synced(*command: object) -> Callable[[], measure.Run]:
        def once() -> measure.Run:
            shutil.rmtree(out, ignore_errors=True)
            os.sync()
            started = time.perf_counter()
            run = measure.run(["sh", "-c", '"$@" && sync', "sh", *map(str, command)])
            seconds = time.perf_counter() - started
            return measure.Run(seconds, run.cpu_seconds, run.peak_bytes, run.samples, run.output)

        return once

    def export(dataset: Path, *given: str) -> Callable[[], measure.Run]:
        command = [sys.executable, "-m", "tokenmill", "export", dataset, "--out", out]
        return synced(*command, "--format", "megatron", *given)

    def row(name: str, group: list[measure.Run], copied: list[float]) -> list[str]:
        return [
            name,
            f"{statistics.median(run.seconds for run in group):.2f}",
            f"{statistics.median(run.cpu_seconds for run in group):.2f}",
            f"{max(run.peak_bytes for run in group) / 1e9:.2f}",
            f"{measure.ratio(copied, [run.seconds for run in group]):.2f}",
        ]

    export(options.dataset)()  # also compiles
    shutil.rmtree(model, ignore_errors=True)
    out.rename(model)
    num_bytes = sum(path.stat().st_size for path in model.iterdir())
    contenders = {
        "cp -r": synced("cp", "-r", model, out),
        "export": export(options.dataset),
        "export --order shuffled": export(options.dataset, "--order", "shuffled"),
        "export --index-only, as the start": export(options.dataset, "--index-only"),
    }
    runs = measure.interleave(contenders, options.rounds)
    copied = [run.seconds for run in runs["cp -r"]]
    header = ["contender", "seconds", "CPU s", "peak GB", "bandwidth of cp"]
    print(f"\n{num_bytes / 1e6:,.0f} MB\n")
    print(measure.table(header, [row(name, group, copied) for name, group in runs.items()]))
    shutil.rmtree(model)
    if options.many:
        many = options.work / "many"
        many_documents(options.dataset, many, options.many)
        print(f"\n{options.many:,} documents\n")
        ways = {"corpus": [], "shuffled": ["--order", "shuffled"], "index": ["--index-only"]}
        rows = [row(name, [export(many, *given)()], [1.0])[:4] for name, given in ways.items()]
        print(measure.table(header[:4], rows))
        shutil.rmtree(many)
    shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main()

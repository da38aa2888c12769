"""Compare `tokenmill export` with `cp` of the same files, and with the usual way to write rows.

The usual way of training scripts is to extend a list with every document, slice it into rows, and
call `torch.save`. It gets the same documents in memory and writes input_ids and labels. It packs by
concatenation, which is the cheapest plan. All contenders end with a sync.

An export of one row measures the start-up time (Python, libraries, the order of rows). The line
below each table compares the bandwidth without it to that of `cp`.

    tokenmill build corpus/*.jsonl.zst --tokenizer gpt2.json --out CORPUS
    tokenmill pack CORPUS --sequence-length 4096
    python bench/rows.py --dataset CORPUS --plan best-fit-4096 --work WORK

`--formats mds --streaming PYTHON` also writes rows that are in memory with MDSWriter and with our
writer. PYTHON is in the environment `streaming` of `bench/peers/setup.sh`.
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


def naive(dataset_folder: str, out: str, length: int) -> None:
    """Extend, slice, save."""
    import torch

    import tokenmill

    dataset = tokenmill.open(dataset_folder)
    tokens: list[int] = []
    number = 0

    def save(rows: list[list[int]]) -> None:
        nonlocal number
        ids = torch.tensor(rows)
        torch.save({"input_ids": ids, "labels": ids.clone()}, f"{out}/chunk-{number:05d}.pt")
        number += 1

    rows: list[list[int]] = []
    for shard in dataset.shards:
        for index in range(len(shard.lengths)):
            tokens.extend(shard.document(index).tolist())
            while len(tokens) >= length:
                rows.append(tokens[:length])
                tokens = tokens[length:]
                if len(rows) == 8192:
                    save(rows)
                    rows = []
    save([*rows, tokens + [0] * (length - len(tokens))])


def write_mds(rows_folder: Path, out: Path) -> None:
    """Write exported arrays as shards, like `bench/peers/write_mds.py`, and print the seconds."""
    from tokenmill.load.export.folder import flushed
    from tokenmill.load.export.rows.mds import FILE_BYTES, MdsWriter

    rows = np.concatenate([np.load(path) for path in sorted(rows_folder.glob("*.npy"))])
    out.mkdir()
    length = rows.shape[1]
    per_file, at_once = FILE_BYTES // (4 * length), (1 << 20) // length
    started = time.perf_counter()
    for number, first in enumerate(range(0, len(rows), per_file)):
        part = rows[first : first + per_file]
        writer = MdsWriter(out / f"rows-{length}-{number:05d}", len(part))
        for place in range(0, len(part), at_once):
            writer.append({"input_ids": part[place : place + at_once]})
        for path in writer.finish():
            flushed(path)
    os.sync()
    print(time.perf_counter() - started)


def compare_writers(options: argparse.Namespace, export: list[str]) -> None:
    """Print how much faster rows in memory are written than by MDSWriter."""
    rows, out = options.work / "rows-npy", options.work / "shards"
    as_npy = ["--format", "npy", "--columns", "input_ids", "--out", str(rows), "--overwrite"]
    measure.run([*export, *as_npy])
    seconds: dict[str, list[float]] = {"theirs": [], "ours": []}
    theirs = [options.streaming, str(Path(__file__).parent / "peers" / "write_mds.py")]
    ours = [sys.executable, __file__, "--dataset", ".", "--work", ".", "--write-mds"]
    for _ in range(options.rounds):
        for name, command in (("theirs", [*theirs, out, rows]), ("ours", [*ours, out, rows])):
            shutil.rmtree(out, ignore_errors=True)
            os.sync()
            run = measure.run(list(map(str, command)))
            seconds[name].append(float(run.output.split()[-1]))
    shutil.rmtree(out)
    shutil.rmtree(rows)
    medians = [statistics.median(seconds[name]) for name in ("theirs", "ours")]
    ratio = measure.ratio(seconds["theirs"], seconds["ours"])
    print(f"\nRows in memory: MDSWriter {medians[0]:.2f} s, ours {medians[1]:.2f} s: {ratio:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--plan", default="best-fit-4096")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", nargs="+", default=["npy", "pt", "datasets", "parquet"])
    parser.add_argument("--streaming", metavar="PYTHON", help="one with mosaicml-streaming")
    parser.add_argument("--write-mds", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--naive", metavar="OUT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.naive:
        naive(str(options.dataset), options.naive, 4096)
        return
    if options.write_mds:
        write_mds(options.write_mds[1], options.write_mds[0])
        return
    print(measure.machine(), measure.versions(["tokenmill", "numpy", "torch", "pyarrow"]))
    options.work.mkdir(parents=True, exist_ok=True)
    out = options.work / "rows"

    def synced(command: list[str]) -> Callable[[], measure.Run]:
        def once() -> measure.Run:
            shutil.rmtree(out, ignore_errors=True)
            if "--naive" in command or command[0] == "cp":
                out.mkdir()
            os.sync()
            started = time.perf_counter()
            run = measure.run(["sh", "-c", '"$@" && sync', "sh", *command])
            return measure.Run(
                time.perf_counter() - started,
                run.cpu_seconds,
                run.peak_bytes,
                run.samples,
                run.output,
            )

        return once

    for each in options.formats:
        export = [sys.executable, "-m", "tokenmill", "export", str(options.dataset)]
        export += ["--plan", options.plan, "--out", str(out), "--format", each]
        synced(export)()  # also compiles
        model = options.work / f"model-{each}"
        shutil.rmtree(model, ignore_errors=True)
        out.rename(model)
        num_bytes = sum(path.stat().st_size for path in model.iterdir())
        contenders = {
            "cp": synced(["cp", "-r", f"{model}/.", str(out)]),
            "tokenmill export": synced(export),
            "export of one row": synced([*export, "--max-sequences", "1"]),
        }
        if each == "pt":
            own = [sys.executable, __file__, "--dataset", str(options.dataset)]
            own += ["--work", str(options.work), "--naive", str(out)]
            contenders["extend, slice, save"] = synced(own)
        runs = measure.interleave(contenders, options.rounds)
        copied = [run.seconds for run in runs["cp"]]
        started = statistics.median(run.seconds for run in runs.pop("export of one row"))
        alone = [max(run.seconds - started, 1e-3) for run in runs["tokenmill export"]]
        rows = [
            [
                name,
                f"{statistics.median(run.seconds for run in group):.2f}",
                f"{statistics.median(run.cpu_seconds for run in group):.2f}",
                f"{max(run.peak_bytes for run in group) / 1e9:.2f}",
                f"{measure.ratio(copied, [run.seconds for run in group]):.2f}",
            ]
            for name, group in runs.items()
        ]
        print(f"\n## {each}: {num_bytes / 1e6:.0f} MB\n")
        header = ["contender", "seconds", "CPU s", "peak GB", "bandwidth of cp"]
        print(measure.table(header, rows))
        without = f"{measure.ratio(copied, alone):.2f} of the bandwidth of cp without it"
        print(f"\nThe start takes {started:.2f} s; {without}.", flush=True)
        shutil.rmtree(model)
        if each == "mds" and options.streaming:
            compare_writers(options, export)
    shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main()

"""Compare the loader with its bound and with other loaders; also cold caches and large datasets.

- bound: assembled batches, and a NumPy loop that writes the same arrays from segments that were
  found beforehand; warm page cache, one core, equal byte for byte;
- peers: tokens per second of whole shuffled epochs in a bare loop, with 0 and 2 workers. litData,
  MosaicML streaming and Hugging Face datasets get the rows of the plan in their own formats, and
  return only input_ids. litData shuffles by blocks, the other two globally;
- steps: how long a step of 5 ms waits for its batch, with and without a thread that prepares
  batches (`prefetch`), and with a DataLoader worker. Steps sleep like those of a GPU, compute in
  PyTorch, or run in Python, which blocks the thread;
- stats: what `loader.stats()` costs for each batch, in the trainer and in the thread that prepares
  batches, as a share of a step of 1 ms;
- resume: seconds from opening in a new process to the first batch after half an epoch;
- maps: batches of a dataset of many shards, with all or fewer of them mapped at once;
- cold: epochs after the dataset's pages were dropped, shuffled globally and by blocks;
- huge: first batch, and resume at 1 %, 50 % and 99 %, of a dataset of 100 billion tokens made of
  holes (every id is 0), beside one a hundredth of it.

Every run is a process of its own; contenders take turns.

    tokenmill build corpus/*.jsonl.zst --tokenizer gpt2.json --out CORPUS
    sh bench/peers/setup.sh PEERS
    python bench/loader.py --dataset CORPUS --peers PEERS --work WORK
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import json
import mmap
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import measure
from loader_runs import (
    make_plan,
    run_bound,
    run_epoch,
    run_first,
    run_maps,
    run_stats,
    run_steps,
    write_rows,
    write_sparse,
)

HERE = Path(__file__).resolve().parent


PEERS = {
    "litdata": ("litData TokensLoader", ("litdata",)),
    "streaming": ("MosaicML streaming", ("mosaicml-streaming",)),
    "datasets": ("DataLoader over datasets", ("datasets", "torchdata")),
}


def evict(paths: Iterable[Path]) -> float:
    """Drop the files' pages from the page cache; the share that stayed, files of holes aside."""
    resident = total = 0
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            size = os.fstat(file.fileno()).st_size
            if os.fstat(file.fileno()).st_blocks * 512 < size or not size:
                continue  # holes, or compressed by the file system
            pages = -(-size // mmap.PAGESIZE)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
                flags = (ctypes.c_ubyte * pages)()
                address = ctypes.addressof(anchor := ctypes.c_char.from_buffer(mapped))
                mincore = ctypes.CDLL(None, use_errno=True).mincore
                if mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), flags):
                    raise OSError(ctypes.get_errno(), "mincore")
                del anchor
            resident += int((np.frombuffer(flags, np.uint8) & 1).sum())
            total += pages
    return resident / max(total, 1)


def place_in(folder: Path, plan: str, at: float, batch_size: int) -> int:
    """The batch that stands at a share of an epoch."""
    manifest = json.loads((folder / "plans" / plan / "plan.json").read_text())
    return int(at * -(-manifest["num_sequences"] // batch_size))


def dataset_files(folder: Path, plan: str) -> list[Path]:
    """What a loader reads."""
    found = [*(folder / "tokens").iterdir(), *(folder / "plans" / plan).iterdir()]
    return sorted([*found, folder / "manifest.json"])


def own_command(function: Callable[..., Any], **arguments: Any) -> list[str]:
    """The command that runs a function of `loader_runs.py` and prints what it returns."""
    program = str(HERE / "loader_runs.py")
    return [sys.executable, program, function.__name__, json.dumps(arguments)]


def run(command: list[str]) -> dict[str, Any]:
    """What a process says in the last line of its output."""
    return json.loads(measure.run(command, hz=0).output.strip().splitlines()[-1])


def peer_command(options: argparse.Namespace, name: str, *words: str) -> list[str]:
    python = options.peers / name / "bin" / "python"
    return [str(python), str(HERE / "peers" / f"load_{name}.py"), *words]


def found_peers(options: argparse.Namespace) -> list[str]:
    if options.peers is None:
        return []
    wanted = [name for name in PEERS if (options.peers / name / "bin" / "python").exists()]
    for name in wanted:
        python = str(options.peers / name / "bin" / "python")
        print(f"{name}:", measure.versions([*PEERS[name][1], "torch", "numpy", "pyarrow"], python))
    return wanted


def millions(value: float) -> str:
    return f"{value / 1e6:.1f}"


def part_bound(options: argparse.Namespace) -> None:
    rows = []
    for length, batch_size in options.shapes:
        plan = run(own_command(make_plan, folder=str(options.dataset), length=length))
        measure.warm(dataset_files(options.dataset, plan))
        found = run(
            own_command(
                run_bound,
                folder=str(options.dataset),
                plan=plan,
                batch_size=batch_size,
                rounds=options.rounds,
                shuffle=options.shuffle,
            )
        )
        seconds, tokens = found["seconds"], found["tokens"]
        best, same = seconds["numpy, new arrays"], seconds["numpy, same arrays"]
        rows.append(
            [
                f"{length:,} x {batch_size}",
                f"{found['segments'] / found['batches']:.1f}",
                *(millions(tokens / statistics.median(each)) for each in seconds.values()),
                f"{measure.ratio(best, seconds['ours']):.2f}",
                f"{measure.ratio(same, seconds['ours']):.2f}",
                str(found["checked"]),
            ]
        )
    print(f"\n## Bound: millions of tokens a second, one core, order {options.shuffle}\n")
    header = ["shape", "segments a batch", "ours", "numpy, new arrays", "numpy, same arrays"]
    header += ["ours / new", "ours / same", "batches found equal"]
    print(measure.table(header, rows), flush=True)


def convert_for(options: argparse.Namespace, names: Sequence[str], plan: str) -> dict[str, Path]:
    """The rows of the plan in every peer's format, made unless they are there."""
    work = options.work / "peers"
    work.mkdir(parents=True, exist_ok=True)
    rows = work / f"{plan}.bin"
    folders = {name: work / f"{plan}-{name}" for name in names}
    missing = [name for name in names if not (work / f"{plan}-{name}.done").exists()]
    if missing and not rows.exists():
        partly = rows.with_suffix(".part")
        run(own_command(write_rows, folder=str(options.dataset), plan=plan, path=str(partly)))
        partly.rename(rows)
    for name in missing:
        shutil.rmtree(folders[name], ignore_errors=True)
        length = str(options.peer_length)
        found = run(peer_command(options, name, "convert", str(rows), length, str(folders[name])))
        print(f"{name}: {found['bytes'] / 1e6:.0f} MB in {found['seconds']:.1f} s, not on a clock")
        (work / f"{plan}-{name}.done").touch()
    return folders


def part_peers(options: argparse.Namespace) -> None:
    names = found_peers(options)
    plan = run(own_command(make_plan, folder=str(options.dataset), length=options.peer_length))
    folders = convert_for(options, names, plan)
    epoch = functools.partial(own_command, run_epoch, folder=str(options.dataset), plan=plan)
    measure.warm(dataset_files(options.dataset, plan))
    for folder in folders.values():
        measure.warm([path for path in folder.rglob("*") if path.is_file()])

    own = run(epoch(workers=0, epochs=1, shuffle="global", check=True))
    repeats = own["rows"] - own["distinct_rows"]  # of the corpus itself
    print("\n## Peers: what an epoch serves\n")
    served = [["tokenmill", "0", f"{own['rows']:,}", f"{own['tokens']:,}", "0", "0", "yes"]]
    for name, workers in itertools.product(names, options.workers):
        words = ["--workers", str(workers), "--check"]
        found = run(peer_command(options, name, "epoch", str(folders[name]), *words))
        served.append(
            [
                PEERS[name][0],
                str(workers),
                f"{found['rows']:,}",
                f"{found['tokens']:,}",
                f"{own['distinct_rows'] - found['distinct_rows']:,}",
                f"{found['rows'] - found['distinct_rows'] - repeats:,}",
                "yes" if found["sum"] == own["sum"] else "no",
            ]
        )
    header = ["loader", "workers", "rows", "tokens", "rows missing", "rows twice", "same rows"]
    print(measure.table(header, served), flush=True)

    for workers in options.workers:
        contenders = {
            "tokenmill, global": epoch(workers=workers, epochs=options.epochs, shuffle="global"),
            "tokenmill, blocks": epoch(workers=workers, epochs=options.epochs, shuffle="blocks"),
            "tokenmill, input_ids alone": epoch(
                workers=workers, epochs=options.epochs, shuffle="global", columns=["input_ids"]
            ),
        }
        for name in names:
            words = ["--workers", str(workers), "--epochs", str(options.epochs)]
            command = peer_command(options, name, "epoch", str(folders[name]), *words)
            contenders[PEERS[name][0]] = command
        print_epochs(
            f"Peers: {workers} workers, {options.peer_length:,} x 8, warm",
            {name: functools.partial(run, command) for name, command in contenders.items()},
            options.rounds,
        )


def print_epochs(title: str, contenders: dict[str, Callable[[], Any]], rounds: int) -> None:
    runs = measure.interleave(contenders, rounds)

    def seconds(found: dict[str, Any]) -> float:
        """A token's seconds, start of the epoch included: the median of the run's epochs."""
        return statistics.median(each["seconds"] / each["tokens"] for each in found["epochs"])

    def steady(found: dict[str, Any]) -> float:
        each = found["epochs"][-1]
        return (each["seconds"] - each["first"]) / each["tokens"]

    best = next(iter(runs.values()))
    rows = []
    for name, group in runs.items():
        whole, later = ([function(found) for found in group] for function in (seconds, steady))
        firsts = [found["opened"] + found["epochs"][0]["first"] for found in group]
        rows.append(
            [
                name,
                millions(1 / statistics.median(whole)),
                millions(1 / statistics.median(later)),
                f"{statistics.median(firsts):.3f}",
                f"{measure.ratio(whole, [seconds(found) for found in best]):.2f}",
                f"{measure.ratio(later, [steady(found) for found in best]):.2f}",
            ]
        )
    print(f"\n## {title}\n")
    header = ["loader", "M tokens/s", "after the first batch", "open to first batch, s"]
    header += ["first row is x faster", "after the first batch"]
    print(measure.table(header, rows), flush=True)


def part_resume(options: argparse.Namespace) -> None:
    """Whether the peers go on with the batches that would have come, and how long it takes."""
    names = found_peers(options)
    plan = run(own_command(make_plan, folder=str(options.dataset), length=options.peer_length))
    folders = convert_for(options, names, plan)
    rows = []
    arguments = {"folder": str(options.dataset), "plan": plan, "batch_size": 8}
    for at in options.at:
        arguments["first_batch"] = place_in(options.dataset, plan, at, 8)
        found = [run(own_command(run_first, **arguments)) for _ in range(options.rounds)]
        seconds = statistics.median(each["seconds"] for each in found)
        rows.append(["tokenmill", "0", f"{at:.0%}", f"{seconds:.3f}", "", "", ""])
    state = options.work / "peers" / "state"
    for name, workers, at in itertools.product(names, options.workers, options.at):
        words = [str(folders[name]), "--workers", str(workers), "--state", str(state)]
        start = [PEERS[name][0], str(workers), f"{at:.0%}"]
        try:
            stopped = run(peer_command(options, name, "stop", *words, "--at", str(at)))
            found = [
                run(peer_command(options, name, "resume", *words)) for _ in range(options.rounds)
            ]
        except measure.CommandFailed as error:
            rows.append([*start, "", "", "fails: " + str(error).strip().splitlines()[-1][:80], ""])
            continue
        seconds = statistics.median(each["seconds"] for each in found)
        equal = "yes" if all(each["equal"] for each in found) else "no"
        left = f"{found[0]['rest']:,} of {found[0]['expected_rest']:,}"
        rows.append([*start, f"{seconds:.3f}", f"{stopped['state_bytes']:,}", equal, left])
    print("\n## Resume\n")
    header = ["loader", "workers", "at", "seconds", "bytes of state", "same batches", "rows left"]
    print(measure.table(header, rows), flush=True)


def part_cold(options: argparse.Namespace) -> None:
    plan = run(own_command(make_plan, folder=str(options.dataset), length=options.peer_length))
    files = dataset_files(options.dataset, plan)
    stayed: list[float] = []

    def once(shuffle: str, *, cold: bool) -> dict[str, Any]:
        if cold:
            stayed.append(evict(files))
        else:
            measure.warm(files)
        arguments = {"folder": str(options.dataset), "plan": plan, "workers": 0}
        return run(own_command(run_epoch, epochs=1, shuffle=shuffle, **arguments))

    contenders = {
        f"{shuffle}, {'cold' if cold else 'warm'}": functools.partial(once, shuffle, cold=cold)
        for cold in (True, False)
        for shuffle in ("global", "blocks")
    }
    size = sum(path.stat().st_size for path in files)
    print_epochs(f"Cold: one epoch of {size / 1e6:.0f} MB, no workers", contenders, options.rounds)
    print(f"\nPages that stayed in the cache: at most {max(stayed):.1%}.")


AHEAD = {(0, 0): "nothing", (1, 0): "prefetch 1", (2, 0): "prefetch 2", (4, 0): "prefetch 4"}
AHEAD[0, 1] = "one DataLoader worker"


def part_steps(options: argparse.Namespace) -> None:
    """What of a step is waiting: the median step, and all steps together."""
    for length, batch_size in options.shapes:
        plan = run(own_command(make_plan, folder=str(options.dataset), length=length))
        measure.warm(dataset_files(options.dataset, plan))
        arguments = {"plan": plan, "batch_size": batch_size, "rounds": options.rounds}
        arguments["ahead"] = list(AHEAD)
        found = run(own_command(run_steps, folder=str(options.dataset), **arguments))
        rows = []
        for kind, ways in found["waits"].items():
            for way, waits in ways.items():
                prefetch, workers = map(int, way.split())
                median, mean = statistics.median(waits), statistics.fmean(waits)
                row = [kind, AHEAD[prefetch, workers], f"{1e6 * median:.0f}"]
                rows.append([*row, *(f"{each / found['step']:.2%}" for each in (median, mean))])
        print(f"\n## Steps of {found['step'] * 1e3:g} ms, batches of {length:,} x {batch_size}\n")
        header = ["step", "ahead", "waits, us, median", "of the step, median", "mean"]
        print(measure.table(header, rows), flush=True)


def part_stats(options: argparse.Namespace) -> None:
    """What counts and waits cost: the least of all rounds."""
    rows = []
    for length, batch_size in options.shapes:
        plan = run(own_command(make_plan, folder=str(options.dataset), length=length))
        arguments = {"plan": plan, "batch_size": batch_size, "rounds": options.rounds}
        found = run(own_command(run_stats, folder=str(options.dataset), **arguments))
        for part, seconds in found.items():
            cells = [f"{length:,} x {batch_size}", part, f"{1e6 * min(seconds):.2f}"]
            rows.append([*cells, f"{min(seconds) / 1e-3:.2%}"])
    print("\n## Stats: cost of a batch, beside a step of 1 ms\n")
    print(measure.table(["shape", "who", "us", "of the step"], rows), flush=True)


def part_maps(options: argparse.Namespace) -> None:
    """Shards mapped at once: all of them, or as many as descriptors of Python's mmap allow."""
    folder, limits = options.work / "many", [options.many_shards, *options.mapped]
    arguments = {"num_shards": options.many_shards, "shard_tokens": 1_000_000}
    run(own_command(write_sparse, folder=str(folder), model=str(options.dataset), **arguments))
    plan = run(own_command(make_plan, folder=str(folder), length=options.peer_length))
    found = run(
        own_command(run_maps, folder=str(folder), plan=plan, limits=limits, rounds=options.rounds)
    )["seconds"]
    rows = [
        [
            limit,
            f"{statistics.median(each) * 1e6:.0f}",
            f"{measure.ratio(each, found[str(limits[0])]):.2f}",
        ]
        for limit, each in found.items()
    ]
    print(f"\n## Maps: {options.many_shards} shards, {options.peer_length:,} x 8\n")
    print(measure.table(["mapped at once", "CPU us a batch", "x as long"], rows), flush=True)


def part_huge(options: argparse.Namespace) -> None:
    shard_tokens = int(options.huge_tokens) // options.huge_shards
    sizes = {"huge": options.huge_shards, "hundredth": max(options.huge_shards // 100, 1)}
    rows = []
    plans, files = {}, {}
    for name, num_shards in sizes.items():
        folder = options.work / name
        model = str(options.dataset)
        arguments = {"num_shards": num_shards, "shard_tokens": shard_tokens}
        run(own_command(write_sparse, folder=str(folder), model=model, **arguments))
        plans[name] = run(own_command(make_plan, folder=str(folder), length=options.peer_length))
        files[name] = dataset_files(folder, plans[name])
    os.sync()

    def once(name: str, at: float, *, cold: bool) -> dict[str, Any]:
        folder, plan = options.work / name, plans[name]
        arguments = {"plan": plan, "first_batch": place_in(folder, plan, at, 8), "batch_size": 8}
        if cold:
            evict(files[name])
        return run(own_command(run_first, folder=str(folder), **arguments))

    cases = list(itertools.product((False, True), (0.0, *options.at), sizes))
    runs = measure.interleave(
        {
            f"{name} {at} {cold}": functools.partial(once, name, at, cold=cold)
            for cold, at, name in cases
        },
        options.rounds,
    )
    for cold, at, name in cases:
        group = runs[f"{name} {at} {cold}"]
        small = runs[f"hundredth {at} {cold}"]
        rows.append(
            [
                f"{sizes[name] * shard_tokens / 1e9:,.1f} billion",
                "cold" if cold else "warm",
                f"{at:.0%}",
                f"{statistics.median(each['seconds'] for each in group):.3f}",
                ratio_of(group, small, "seconds"),
                f"{max(each['peak'] for each in group) / 1e6:.0f}",
                f"{max(each['own'] for each in group) / 1e6:.0f}",
                ratio_of(group, small, "peak"),
            ]
        )
    print("\n## Huge: from open to the first batch\n")
    header = ["tokens", "cache", "at", "seconds", "x hundredth", "peak MB", "own MB", "x hundredth"]
    print(measure.table(header, rows), flush=True)


def ratio_of(group: Sequence[dict], others: Sequence[dict], field: str) -> str:
    return f"{measure.ratio([x[field] for x in group], [x[field] for x in others]):.2f}"


PARTS = {"bound": part_bound, "steps": part_steps, "peers": part_peers, "resume": part_resume}
PARTS["stats"] = part_stats
PARTS |= {"cold": part_cold, "maps": part_maps, "huge": part_huge}


def shape(text: str) -> tuple[int, int]:
    length, batch_size = text.split("x")
    return int(length), int(batch_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--peers", type=Path, help="folder of environments by peers/setup.sh")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each run of peers")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    shapes = [(4096, 8), (32768, 1), (131072, 1)]
    parser.add_argument("--shapes", type=shape, nargs="+", default=shapes, metavar="LENGTHxBATCH")
    parser.add_argument("--shuffle", choices=["global", "blocks", "none"], default="global")
    parser.add_argument("--peer-length", type=int, default=4096)
    parser.add_argument("--at", type=float, nargs="+", default=[0.01, 0.5, 0.99])
    parser.add_argument("--many-shards", type=int, default=1024)
    parser.add_argument("--mapped", type=int, nargs="+", default=[256, 128])
    parser.add_argument("--huge-tokens", type=float, default=1e11)
    parser.add_argument("--huge-shards", type=int, default=512)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    print(measure.machine(), measure.versions(["tokenmill", "numpy", "numba", "torch"]))
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()

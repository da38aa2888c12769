"""The loader against its bound, against other loaders, from a cold cache, and at full size.

- bound: assembled batches against a loop of numpy that writes the same arrays from the same
  segments, found beforehand; warm page cache, one core, equal byte for byte;
- peers: tokens a second of whole epochs in a bare loop, shuffled, with 0 and 2 workers; litData,
  MosaicML streaming and Hugging Face datasets are given the rows of the plan in their own format,
  and make input_ids alone; litData shuffles by blocks, the other two globally;
- resume: seconds from a new process's open to the first batch after half an epoch;
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
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import measure
from peers import loading

HERE = Path(__file__).resolve().parent
NAMES = ("input_ids", "labels", "position_ids", "cu_seqlens")
IGNORED = -100
LABELS = "aligned"
"""The convention of the labels that `ours` gives."""
CHECKED_BATCHES = 50
PEERS = {
    "litdata": ("litData TokensLoader", ("litdata",)),
    "streaming": ("MosaicML streaming", ("mosaicml-streaming",)),
    "datasets": ("DataLoader over datasets", ("datasets", "torchdata")),
}


def ours(
    folder: Path,
    plan: str,
    *,
    batch_size: int = 8,
    shuffle: str = "global",
    workers: int = 0,
    first_batch: int = 0,
) -> Iterable[dict[str, Any]]:
    """Batches of an epoch from `first_batch` on; `shuffle` is "global", "blocks" or "none"."""
    import tokenmill

    loader = tokenmill.open(folder).loader(
        plan, batch_size=batch_size, shuffle=shuffle, columns=NAMES, labels=LABELS
    )
    return _From(loader, loader.state_dict(first_batch), workers)


class _From:
    """Batches from a state on, as often as they are asked for."""

    def __init__(self, loader: Any, state: dict[str, Any], workers: int) -> None:
        from torch.utils.data import DataLoader

        self.loader, self.state = loader, state
        self.batches = loader
        if workers:
            self.batches = DataLoader(loader, batch_size=None, num_workers=workers)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.loader.load_state_dict(self.state)
        return iter(self.batches)


def sequences_of(folder: Path, plan: str, shuffle: str) -> np.ndarray:
    """The sequences of an epoch in the order in which `ours` gives them."""
    import tokenmill
    from tokenmill.load.order import Order, steps_of

    opened = tokenmill.open_plan(tokenmill.open(folder), plan)
    return Order(steps_of(opened), 0, shuffle)(0, np.arange(len(opened)))


Segment = tuple[np.ndarray | None, int, int, bool, int]
"""Tokens of a shard (None: padding), first token, length, whether the document goes on, column."""


def prepared(folder: Path, plan_name: str, batch_size: int, shuffle: str) -> list[list[Segment]]:
    """The segments of each batch of an epoch, looked up; columns count through a batch's rows."""
    import tokenmill

    dataset = tokenmill.open(folder)
    plan = tokenmill.open_plan(dataset, plan_name)
    length = plan.manifest.options["sequence_length"]
    tokens = [np.asarray(shard.ids) for shard in dataset.shards]
    ends = np.cumsum([shard.entry.documents for shard in dataset.shards]).tolist()
    order = sequences_of(folder, plan_name, shuffle).tolist()
    batches = []
    for first in range(0, len(order) - batch_size + 1, batch_size):
        segments: list[Segment] = []
        for row, sequence in enumerate(order[first : first + batch_size]):
            column = row * length
            for document, start, count in plan.segments(sequence):
                number = int(np.searchsorted(ends, document, side="right"))
                shard = dataset.shards[number]
                index = document - (ends[number - 1] if number else 0)
                goes_on = start + count < int(shard.lengths[index])
                at = int(shard.offsets[index]) + start
                segments.append((tokens[number], at, count, goes_on, column))
                column += count
            if column < (row + 1) * length:
                segments.append((None, 0, (row + 1) * length - column, False, column))
        batches.append(segments)
    return batches


def numpy_loop(
    batches: list[list[Segment]], length: int, pad_id: int, *, new_arrays: bool
) -> Iterator[tuple[np.ndarray, ...]]:
    """The bound: one assignment of a slice each for ids, labels and positions of a segment.

    A batch gets new arrays, as a loader's batches must where they are kept or copied from later,
    or all are written over one another, which no loader may do.
    """
    counted = np.arange(length)
    is_next = LABELS == "next"
    ids = labels = positions = np.empty(0, np.int64)
    for batch in batches:
        size = batch[-1][4] + batch[-1][2]
        if new_arrays or not len(ids) or size != len(ids):
            ids, labels, positions = (np.empty(size, np.int64) for _ in range(3))
        for tokens, first, count, goes_on, column in batch:
            end = column + count
            positions[column:end] = counted[:count]
            if tokens is None:
                ids[column:end] = pad_id
                labels[column:end] = IGNORED
                continue
            ids[column:end] = tokens[first : first + count]
            if not is_next:
                labels[column] = IGNORED
                labels[column + 1 : end] = tokens[first + 1 : first + count]
            elif goes_on:
                labels[column:end] = tokens[first + 1 : first + count + 1]
            else:
                labels[column : end - 1] = tokens[first + 1 : first + count]
                labels[end - 1] = IGNORED
        edges = np.array([segment[4] for segment in batch] + [size], np.int32)
        yield ids, labels, positions, edges


def check_equal(batch: dict[str, Any], expected: Sequence[np.ndarray], number: int) -> None:
    """Every array of a batch byte for byte; `cu_seqlens` may end with repeats of its last edge."""
    dtypes = (np.int64, np.int64, np.int64, np.int32)
    for name, wanted, dtype in zip(NAMES, expected, dtypes, strict=True):
        found = batch[name].numpy()
        assert found.dtype == wanted.dtype == dtype, (number, name, found.dtype)
        found = found.reshape(-1)
        if name == "cu_seqlens":
            assert (found[len(wanted) :] == wanted[-1]).all(), (number, name)
            found = found[: len(wanted)]
        assert found.tobytes() == wanted.tobytes(), (number, name)


def run_bound(folder: str, plan: str, batch_size: int, rounds: int, shuffle: str) -> dict[str, Any]:
    """Seconds of an epoch, of each contender in turn, in this process and on one core."""
    import torch

    import tokenmill

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    place = Path(folder)
    batches = prepared(place, plan, batch_size, shuffle)
    opened = tokenmill.open_plan(tokenmill.open(place), plan)
    length = opened.manifest.options["sequence_length"]
    tokenizer = tokenmill.open(place).manifest.tokenizer
    pad_id = tokenizer.eos_id if tokenizer.pad_id is None else tokenizer.pad_id
    loader = ours(place, plan, batch_size=batch_size, shuffle=shuffle)
    bound = functools.partial(numpy_loop, batches, length, pad_id)

    pairs = zip(loader, bound(new_arrays=True), strict=True)
    for number, (batch, expected) in enumerate(itertools.islice(pairs, CHECKED_BATCHES)):
        check_equal(batch, expected, number)

    def walk(batches: Iterable[Any]) -> float:
        started = time.perf_counter()
        for _ in batches:
            pass
        return time.perf_counter() - started

    walk(loader)  # reads every page once, and checks it
    seconds = measure.interleave(
        {
            "ours": lambda: walk(loader),
            "numpy, new arrays": lambda: walk(bound(new_arrays=True)),
            "numpy, same arrays": lambda: walk(bound(new_arrays=False)),
        },
        rounds,
    )
    return {
        "seconds": seconds,
        "tokens": len(batches) * batch_size * length,
        "batches": len(batches),
        "segments": sum(map(len, batches)),
        "checked": min(CHECKED_BATCHES, len(batches)),
    }


def run_epoch(
    folder: str, plan: str, workers: int, epochs: int, shuffle: str, *, check: bool = False
) -> dict[str, Any]:
    """What `peers/loading.py` measures of the others, of ours."""
    import torch

    started = time.perf_counter()
    size = 1 if check else 8  # with 1, no row is left over
    loader = ours(Path(folder), plan, batch_size=size, workers=workers, shuffle=shuffle)
    opened = time.perf_counter() - started

    def ids(batch: dict[str, Any]) -> torch.Tensor:
        found = batch["input_ids"]
        return found.view(-1, found.shape[-1])

    if check:
        return loading.fingerprint(ids(batch).numpy() for batch in loader)
    return {"opened": opened, "epochs": loading.time_epochs(loader, ids, epochs)}


def run_first(folder: str, plan: str, first_batch: int, batch_size: int) -> dict[str, Any]:
    """Seconds from open to the first batch from a place on, and what memory it took."""
    import torch  # noqa: F401 - imports are not on the clock

    import tokenmill.api  # noqa: F401

    imports = _status("VmHWM")
    started = time.perf_counter()
    loader = ours(Path(folder), plan, batch_size=batch_size, first_batch=first_batch)
    batch = next(iter(loader))
    seconds = time.perf_counter() - started
    assert batch["input_ids"].numel()
    # The peak counts pages of mapped files that were touched, which the system can take back.
    peak, own = _status("VmHWM"), _status("RssAnon")
    return {"seconds": seconds, "peak": peak, "imports": imports, "own": own}


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(field)


def write_rows(folder: str, plan: str, path: str) -> dict[str, Any]:
    """All rows of a plan in its order, as uint16: what the peers convert."""
    loader = ours(Path(folder), plan, batch_size=1, shuffle="none")
    length = 0
    with open(path, "wb") as file:
        for batch in loader:
            length = batch["input_ids"].shape[-1]
            file.write(batch["input_ids"].numpy().astype("<u2").tobytes())
    return {"length": length}


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


def make_plan(folder: Path, length: int) -> str:
    """The name of the plan of sequences of `length` tokens, made unless it is there."""
    import tokenmill

    name = f"best-fit-{length}"
    if not (folder / "plans" / name / "plan.json").is_file():
        tokenmill.make_plan(folder, sequence_length=length)
    return name


def write_sparse(folder: Path, model: Path, num_shards: int, shard_tokens: int) -> None:
    """A dataset of holes, in which only the ids are missing: documents, digests and plan are right.

    Lengths of documents are lognormal(6.2, 1.1), the same in every shard, so that all shards are
    equal files; none is linked to another.
    """
    import pyarrow as pa
    import xxhash

    import tokenmill
    from tokenmill.store.digests import BLOCK_BYTES, file_digest
    from tokenmill.store.documents import DocumentsWriter
    from tokenmill.store.layout import pack_index
    from tokenmill.store.manifest import (
        Counts,
        ExtentEntry,
        FileEntry,
        Manifest,
        ShardEntry,
        SourceEntry,
        dataset_id,
        read_manifest,
        write_manifest,
    )

    if (folder / "manifest.json").is_file():
        opened = tokenmill.open(folder)
        if opened.num_tokens == num_shards * shard_tokens and len(opened.shards) == num_shards:
            return
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("tokens", "documents"):
        (folder / name).mkdir(parents=True)
    shutil.copytree(model / "tokenizer", folder / "tokenizer")
    like = read_manifest(model)
    assert like.token_dtype == "uint16"

    draws = np.random.default_rng(0).lognormal(6.2, 1.1, shard_tokens // 500 + 100)
    lengths = np.clip(np.rint(draws), 1, None).astype(np.int64)
    lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), shard_tokens)) + 1]
    lengths[-1] -= int(lengths.sum()) - shard_tokens
    count = len(lengths)

    def zeros_digest(num_bytes: int, digest: Any) -> Any:
        block = bytes(1 << 24)
        for start in range(0, num_bytes, len(block)):
            digest.update(memoryview(block)[: min(len(block), num_bytes - start)])
        return digest

    def blocks_of(data: bytes) -> bytes:
        parts = range(0, len(data), BLOCK_BYTES)
        values = [xxhash.xxh3_64_intdigest(data[at : at + BLOCK_BYTES]) for at in parts]
        return np.array(values, "<u8").tobytes()

    size = 2 * shard_tokens
    index = pack_index(lengths, np.dtype("<u2"))
    whole, rest = divmod(size, BLOCK_BYTES)
    blocks = blocks_of(bytes(BLOCK_BYTES)) * whole + blocks_of(bytes(rest)) + blocks_of(index)
    table = folder / "documents" / "00000.parquet"
    writer = DocumentsWriter(table, ["holes"], (), has_no_loss=False)
    rows = SimpleNamespace(
        texts=lengths, source=0, positions=pa.array(np.arange(count)), ids=None, columns={}
    )
    writer.append(rows, np.zeros(count, np.bool_), None)
    writer.close()
    documents = table.read_bytes()
    digests = {
        "tokens/{}.bin": (size, zeros_digest(size, xxhash.xxh3_128()).hexdigest()),
        "tokens/{}.idx": (len(index), xxhash.xxh3_128_hexdigest(index)),
        "tokens/{}.xxh3": (len(blocks), xxhash.xxh3_128_hexdigest(blocks)),
        "documents/{}.parquet": (len(documents), file_digest(table)),
    }
    shards = []
    for number in range(num_shards):
        stem = f"{number:05d}"
        with open(folder / "tokens" / f"{stem}.bin", "wb") as file:
            file.truncate(size)
        (folder / "tokens" / f"{stem}.idx").write_bytes(index)
        (folder / "tokens" / f"{stem}.xxh3").write_bytes(blocks)
        (folder / "documents" / f"{stem}.parquet").write_bytes(documents)
        files = [
            FileEntry(name=name.format(stem), bytes=num_bytes, xxh3_128=digest)
            for name, (num_bytes, digest) in digests.items()
        ]
        extent = ExtentEntry(source=0, start=number, stop=number + 1)
        shards.append(
            ShardEntry(documents=count, tokens=shard_tokens, extents=[extent], files=files)
        )
    counts = Counts(
        records=num_shards * count,
        documents=num_shards * count,
        tokens=num_shards * shard_tokens,
    )
    source = SourceEntry(
        name="holes", format="jsonl", compression="none", bytes=0, xxh3_128="0" * 32, counts=counts
    )
    manifest = Manifest(
        dataset_id=dataset_id(shards, like.tokenizer, like.policies),
        token_dtype="uint16",
        tokenizer=like.tokenizer,
        policies=like.policies,
        totals=counts,
        sources=[source],
        shards=shards,
        rejected=[],
    )
    write_manifest(folder, manifest)


# Everything below runs in the main process, which neither maps a dataset nor imports torch.


def own_command(function: Callable[..., Any], **arguments: Any) -> list[str]:
    """The command that runs a function of this file and prints what it returns."""
    return [sys.executable, str(Path(__file__).resolve()), "--run"] + [
        function.__name__,
        json.dumps(arguments),
    ]


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


RUNS = (run_bound, run_epoch, run_first, write_rows, make_plan, write_sparse)
PARTS = {"bound": part_bound, "peers": part_peers, "resume": part_resume}
PARTS |= {"cold": part_cold, "huge": part_huge}


def shape(text: str) -> tuple[int, int]:
    length, batch_size = text.split("x")
    return int(length), int(batch_size)


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        arguments = json.loads(sys.argv[3])
        for name in ("folder", "model"):
            if name in arguments and sys.argv[2] in ("make_plan", "write_sparse"):
                arguments[name] = Path(arguments[name])
        result = {function.__name__: function for function in RUNS}[sys.argv[2]](**arguments)
        print("\n" + json.dumps(result))
        return
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
    parser.add_argument("--huge-tokens", type=float, default=1e11)
    parser.add_argument("--huge-shards", type=int, default=512)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    print(measure.machine(), measure.versions(["tokenmill", "numpy", "numba", "torch"]))
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()

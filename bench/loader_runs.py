"""The processes that `loader.py` runs: the loader, its bound, and a sparse dataset.

python bench/loader_runs.py FUNCTION JSON-OF-ITS-ARGUMENTS
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import measure
from peers import loading

NAMES = ("input_ids", "labels", "position_ids", "cu_seqlens")


IGNORED = -100


LABELS = "aligned"
"""The convention of the labels that `ours` gives."""


CHECKED_BATCHES = 50


STEP_SECONDS = 0.005


STEPS_OF_A_WALK = 110


def ours(
    folder: Path,
    plan: str,
    *,
    batch_size: int = 8,
    shuffle: str = "global",
    workers: int = 0,
    first_batch: int = 0,
    columns: Sequence[str] = NAMES,
) -> Iterable[dict[str, Any]]:
    """Batches of an epoch from `first_batch` on; `shuffle` is "global", "blocks" or "none"."""
    import tokenmill

    loader = tokenmill.open(folder).loader(
        plan, batch_size=batch_size, shuffle=shuffle, columns=list(columns), labels=LABELS
    )
    return _From(loader, loader.state_dict(first_batch), workers)


class _From:
    """Batches from a state on, as often as they are asked for."""

    def __init__(self, loader: Any, state: dict[str, Any], workers: int) -> None:
        self.loader, self.state = loader, state
        self.batches = loader
        if workers:
            self.batches = loader.dataloader(workers)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.loader.load_state_dict(self.state)
        return iter(self.batches)


def sequences_of(folder: Path, plan: str, shuffle: str) -> np.ndarray:
    """The sequences of an epoch in the order in which `ours` gives them."""
    import tokenmill
    from tokenmill.load.steps.order import Order, steps_of

    opened = tokenmill.open_plan(tokenmill.open(folder), plan)
    return Order(steps_of(opened), 0, shuffle)(0, np.arange(len(opened)))


Segment = tuple[np.ndarray | None, int, int, bool, int]
"""Tokens of a shard (None: padding), first token, length, whether the document goes on, column."""


def prepared(folder: Path, plan_name: str, batch_size: int, shuffle: str) -> list[list[Segment]]:
    """The segments of each batch of an epoch, looked up; columns count through a batch's rows."""
    import tokenmill

    dataset = tokenmill.open(folder)
    plan = tokenmill.open_plan(dataset, plan_name)
    length = plan.rows.length
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
    length = opened.rows.length
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
    folder: str,
    plan: str,
    workers: int,
    epochs: int,
    shuffle: str,
    *,
    columns: Sequence[str] = NAMES,
    check: bool = False,
) -> dict[str, Any]:
    """What `peers/loading.py` measures of the others, of ours."""
    import torch

    started = time.perf_counter()
    size = 1 if check else 8  # with 1, no row is left over
    loader = ours(
        Path(folder), plan, batch_size=size, workers=workers, shuffle=shuffle, columns=columns
    )
    opened = time.perf_counter() - started

    def ids(batch: dict[str, Any]) -> torch.Tensor:
        found = batch["input_ids"]
        return found.view(-1, found.shape[-1])

    if check:
        return loading.fingerprint(ids(batch).numpy() for batch in loader)
    return {"opened": opened, "epochs": loading.time_epochs(loader, ids, epochs)}


def _compute(seconds: float) -> None:
    """A step in PyTorch, which lets other threads run."""
    import torch

    matrix, end = torch.ones(512, 512), time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.mm(matrix, matrix)


def _interpret(seconds: float) -> None:
    """A step in Python, which lets other threads run every 5 ms."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


STEPS = {"on a GPU": time.sleep, "in PyTorch": _compute, "in Python": _interpret}


def run_steps(
    folder: str, plan: str, batch_size: int, ahead: Sequence[tuple[int, int]], rounds: int
) -> dict[str, Any]:
    """Seconds that each step of 5 ms waits for its batch, by kind of step and by what is ahead:
    batches of the thread, and workers of a DataLoader.
    """
    import torch

    import tokenmill

    torch.set_num_threads(1)
    dataset = tokenmill.open(folder)
    waits: dict[str, dict[str, list[float]]] = {}

    def walk(kind: str, prefetch: int, workers: int) -> list[float]:
        loader = dataset.loader(plan, batch_size=batch_size, epochs=None, prefetch=prefetch)
        found, iterator = [], iter(loader.dataloader(workers) if workers else loader)
        held: list[Any] = []
        for _ in range(STEPS_OF_A_WALK):
            held.clear()  # to free a batch takes time, too, with whatever loader
            started = time.perf_counter()
            held.append(next(iterator))
            found.append(time.perf_counter() - started)
            STEPS[kind](STEP_SECONDS)
        return found[10:]  # the first ones read and check

    for number in range(rounds + 1):
        for kind, (prefetch, workers) in itertools.product(STEPS, ahead):
            found = walk(kind, prefetch, workers)
            if number:
                waits.setdefault(kind, {}).setdefault(f"{prefetch} {workers}", []).extend(found)
    return {"waits": waits, "step": STEP_SECONDS}


def run_stats(folder: str, plan: str, batch_size: int, rounds: int) -> dict[str, list[float]]:
    """Seconds that counting and measuring take for a batch, by who spends them."""
    import timeit

    import tokenmill
    from tokenmill.load.stats import Meter, Timed

    batches = tokenmill.open(folder).batches(plan, batch_size=batch_size, epochs=None)
    held = list(itertools.islice(batches.every(1, 0), 40))  # until functions are compiled
    whole = batches._existing(40)
    rows = batches._content(whole, batches._dealt(whole)[0]).rows.segmentation
    made, meter = Meter(), Meter()
    plain = itertools.repeat(held[-1])
    timed = Timed(plain, meter)

    def count() -> None:
        made.add_rows(rows)
        made.take_counts()

    def take() -> None:
        next(timed)
        meter.add_counts(counts)

    made.add_rows(rows)
    counts = made.take_counts()
    parts = {"thread": count, "trainer": take, "stats()": batches.stats}
    return {
        name: [seconds / 1000 for seconds in timeit.repeat(part, number=1000, repeat=rounds)]
        for name, part in parts.items()
    }


def run_maps(folder: str, plan: str, limits: Sequence[int], rounds: int) -> dict[str, Any]:
    """CPU seconds of a batch with so many shards mapped at once, round by round, in turn."""
    import tokenmill
    from tokenmill.load.rows import shard_maps

    dataset = tokenmill.open(folder)
    batches = {limit: dataset.batches(plan, batch_size=8, columns=NAMES) for limit in limits}
    seconds: dict[int, list[float]] = {limit: [] for limit in limits}
    steps = min(len(next(iter(batches.values()))), 400)
    for number in range(rounds + 1):
        for limit in limits:
            shard_maps.MOST_MAPPED = limit
            started = time.process_time()
            for step in range(steps):
                batches[limit].batch(step)
            if number:  # the first round checks what it reads
                seconds[limit].append((time.process_time() - started) / steps)
    return {"seconds": {str(limit): each for limit, each in seconds.items()}}


def run_first(folder: str, plan: str, first_batch: int, batch_size: int) -> dict[str, Any]:
    """Seconds from open to the first batch from a place on, and what memory it took."""
    import torch  # noqa: F401 - imports are not on the clock

    import tokenmill.load.loader  # noqa: F401

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


def make_plan(folder: Path, length: int) -> str:
    """The name of the plan of sequences of `length` tokens, made unless it is there."""
    import tokenmill

    name = f"best-fit-{length}"
    if not (folder / "plans" / name / "plan.json").is_file():
        tokenmill.pack(folder, sequence_length=length)
    return name


def write_sparse(folder: Path, model: Path, num_shards: int, shard_tokens: int) -> None:
    """A dataset of holes, in which only the ids are missing: documents, digests and plan are right.

    Lengths of documents are lognormal(6.2, 1.1), the same in every shard, so that all shards are
    equal files; none is linked to another.
    """
    import xxhash

    import tokenmill
    from tokenmill.store.digests import BLOCK_BYTES, file_digest
    from tokenmill.store.documents_table import DocumentRows, DocumentsWriter
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
    numbers = np.arange(count)
    in_validation = np.zeros(count, np.bool_)
    writer.append(
        DocumentRows(np.zeros(count, np.int32), numbers, [None] * count, in_validation, {}, [])
    )
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


RUNS = (run_bound, run_epoch, run_first, run_maps, run_stats, run_steps)
RUNS += (write_rows, make_plan, write_sparse)


def main() -> None:
    arguments = json.loads(sys.argv[2])
    for name in ("folder", "model"):
        if name in arguments and sys.argv[1] in ("make_plan", "write_sparse"):
            arguments[name] = Path(arguments[name])
    result = {function.__name__: function for function in RUNS}[sys.argv[1]](**arguments)
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()

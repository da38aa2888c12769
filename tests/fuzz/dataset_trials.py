"""Trials with datasets that an attacker made: every digest is right, and something else is not.

    python dataset_trials.py DATASET WORK FIRST_SEED COUNT [SECONDS]

Each trial copies the dataset, changes it by its seed, makes all digests right again, and does what
users do: open, load, verify, inspect, pack, export. Each step must end with a TokenmillError or
with ids that are in the vocabulary. It prints one line for each trial, so that a caller knows which
one killed the process; memory is limited to what a healthy trial needs and MORE_BYTES.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash

import tokenmill
from tokenmill.cli import main as tokenmill_command
from tokenmill.core.errors import TokenmillError
from tokenmill.reports.inspect import edge_views
from tokenmill.store.canonical import canonical_json
from tokenmill.store.digests import block_digests, file_digest

MORE_BYTES = 1 << 30
TRIAL_SECONDS = 240
PLANS = ("a", "buckets")
HOSTILE: list[Any] = [
    -1, 0, 1, 7, 2**16, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64, 10**30, -(2**63),
    0.5, 1e308, True, None, "", "../x", "/etc/passwd", "tokens/00000.bin", "tokens/\x00",
    "python", "uint16", "int32", "a" * 70_000, [], {}, [1], [[]], {"a": 1},
]  # fmt: skip
HOSTILE_NUMBERS = [-(2**62), -1, 0, 1, 2, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1]


def damage(folder: Path, chance: random.Random) -> str:
    """Change something and make the digests right again; returns what was done."""
    json_files = (
        ["manifest.json"] * 4 + ["run.json"] + [f"plans/{name}/plan.json" for name in PLANS]
    )
    kinds: list[Callable[[Path, random.Random], str]] = [_flip, _set_number, _cut]
    if chance.random() < 0.5:
        done = chance.choice(kinds)(folder, chance)
        reseal(folder)
        return done
    name = chance.choice(json_files)
    content = json.loads((folder / name).read_bytes())
    done = f"{name}: {_change_json(content, chance)}"
    seal(folder / name, content)
    if chance.random() < 0.7:
        with contextlib.suppress(Exception):  # what was changed may be what is needed here
            reseal(folder, sizes=False)
    return done


def _change_json(content: Any, chance: random.Random) -> str:
    """Replace, remove or repeat one value."""
    places = list(_places(content))
    holder, key = chance.choice(places)
    what = chance.random()
    if what < 0.1:
        del holder[key]
        return f"remove {key!r}"
    if what < 0.2 and isinstance(holder, list):
        holder.insert(key, holder[key])
        return f"repeat element {key}"
    value = chance.choice(HOSTILE)
    holder[key] = value
    return f"{key!r} = {str(value)[:40]!r}"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, (dict, list)):
            yield from _places(inner)


def _file(folder: Path, chance: random.Random) -> Path:
    """A file of the dataset or of a plan that is no sealed JSON."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    suffix = chance.choice([".bin", ".idx", ".idx", ".xxh3", ".parquet", ".npy", ".npy", ".json"])
    sealed = {"manifest.json", "run.json", "plan.json"}
    return chance.choice([p for p in paths if p.suffix == suffix and p.name not in sealed])


def _flip(folder: Path, chance: random.Random) -> str:
    path = _file(folder, chance)
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(data)
    return f"bytes of {path.relative_to(folder)}"


def _set_number(folder: Path, chance: random.Random) -> str:
    path = _file(folder, chance)
    data = bytearray(path.read_bytes())
    width, value = chance.choice([2, 4, 8]), chance.choice(HOSTILE_NUMBERS)
    start = {".idx": 34, ".npy": 128}.get(path.suffix, 0)
    if len(data) < start + 8:
        start = 0
    at = start + chance.randrange(max((len(data) - start) // width, 1)) * width
    data[at : at + width] = value.to_bytes(8, "little", signed=True)[:width]
    path.write_bytes(data)
    return f"{path.relative_to(folder)}: {value} at {at}"


def _cut(folder: Path, chance: random.Random) -> str:
    path = _file(folder, chance)
    data = path.read_bytes()
    size = chance.randrange(len(data) + 1)
    longer = chance.random() < 0.3
    path.write_bytes(data + data[:size] if longer else data[:size])
    return f"{path.relative_to(folder)}: {len(data)} -> {path.stat().st_size} bytes"


def reseal(folder: Path, *, sizes: bool = True) -> None:
    """Make block digests, sizes, digests and ids right, as an attacker would."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for shard in manifest["shards"]:
        names = {file["name"].rpartition(".")[2]: folder / file["name"] for file in shard["files"]}
        blocks = b"".join(block_digests(memoryview(names[p].read_bytes())) for p in ("bin", "idx"))
        if sizes and names["xxh3"].stat().st_size == len(blocks):
            names["xxh3"].write_bytes(blocks)
    shards = [file for shard in manifest["shards"] for file in shard["files"]]
    for file in [*manifest["tokenizer"]["files"], *shards, *manifest["rejected"]]:
        _describe(folder, file, sizes)
    tokenizer = {**manifest["tokenizer"], "files": []}
    tokenizer.pop("fingerprint", None)
    tokens = [f["xxh3_128"] for f in shards if f["name"].endswith((".bin", ".idx"))]
    manifest["dataset_id"] = _id([tokens, tokenizer, manifest["policies"]])
    seal(folder / "manifest.json", manifest)
    for name in PLANS:
        path = folder / "plans" / name / "plan.json"
        plan = json.loads(path.read_bytes())
        for file in plan["files"]:
            _describe(path.parent, file, sizes)
        plan["dataset_id"] = manifest["dataset_id"]
        arrays = [file["xxh3_128"] for file in plan["files"]]
        plan["plan_id"] = _id([plan["dataset_id"], plan["options"], arrays])
        seal(path, plan)


def _describe(folder: Path, file: dict[str, Any], sizes: bool) -> None:
    file["xxh3_128"] = file_digest(folder / file["name"])
    if sizes:
        file["bytes"] = (folder / file["name"]).stat().st_size


def _id(value: Any) -> str:
    return xxhash.xxh3_128_hexdigest(canonical_json(value))


def seal(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with its digest."""
    content.pop("digest", None)
    blank = canonical_json({**content, "digest": ""})
    digest = xxhash.xxh3_128_hexdigest(blank)
    path.write_bytes(canonical_json({**content, "digest": digest}))


def uses(folder: Path, out: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """What users do with a dataset, by name."""

    def load(plan: str, **options: Any) -> Callable[[], None]:
        def run() -> None:
            dataset = tokenmill.open(folder)
            batches = dataset.batches(plan, global_batch_size=4, **options)
            for batch in islice(batches, 3):
                _require_known(batch["input_ids"], dataset)
            batches.explain(0)

        return run

    def documents() -> None:
        dataset = tokenmill.open(folder)
        list(edge_views(dataset))
        tokenmill.view_document(folder, dataset.num_documents // 2)

    def export(form: str) -> Callable[[], None]:
        return lambda: _export(folder, out / form, form)

    def command(*arguments: str) -> Callable[[], None]:
        return lambda: _command(*arguments)

    columns = ("input_ids", "labels", "position_ids", "cu_seqlens", "loss_weights")
    yield "load", load("a")
    yield "load ranks", load("a", world_size=2, rank=1, columns=columns, labels="next")
    yield "load buckets", load("buckets")
    yield "verify", lambda: tokenmill.verify(folder)
    yield "documents", documents
    yield "inspect", command("inspect", str(folder))
    yield "inspect plan", command("inspect", str(folder), "--plan", "a")
    yield "inspect sequence", command("inspect", str(folder), "--plan", "a", "--sequence", "1")
    yield (
        "pack",
        lambda: tokenmill.pack(folder, name="new", sequence_length=16),
    )
    yield "export", export("npy")
    yield "export buckets", lambda: _export(folder, out / "buckets", "parquet", "buckets")


def _export(folder: Path, out: Path, form: str, plan: str = "a") -> None:
    tokenmill.export(folder, out, plan=plan, format=form)
    dataset = tokenmill.open(folder)
    for path in out.glob("*.input_ids.npy"):
        _require_known(np.load(path), dataset)


def _command(*arguments: str) -> None:
    """Run a command; a typed error has an exit code from 2 on."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = tokenmill_command(list(arguments))
    if code == 1:
        raise AssertionError(f"exit code 1: {said.getvalue()[-400:]}")


def _require_known(ids: Any, dataset: Any) -> None:
    values = np.asarray(ids)
    largest = dataset.manifest.tokenizer.largest_id
    if values.size and not 0 <= values.min() <= values.max() <= largest:
        raise AssertionError(f"ids from {values.min()} to {values.max()} of at most {largest}")


def trial(whole: Path, work: Path, seed: int) -> dict[str, str]:
    """One trial: how each use ended."""
    chance = random.Random(seed)
    folder, out = work / "dataset", work / "out"
    for path in (folder, out):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(whole, folder)
    out.mkdir()
    done = damage(folder, chance) if seed >= 0 else "nothing"
    ended = {"damage": done}
    for name, use in uses(folder, out):
        try:
            use()
        except TokenmillError as error:
            typed = error.exit_code != 1
            ended[name] = f"{type(error).__name__}" if typed else f"UNTYPED {error}"
        except BaseException:
            ended[name] = f"UNTYPED {traceback.format_exc()[-1500:]}"
        else:
            ended[name] = "passed"
    return ended


def main(whole: Path, work: Path, first: int, count: int, seconds: float = 1e9) -> None:
    """Run trials and print them."""
    os.fsync = lambda descriptor: None  # these trials are not about crashes
    healthy = trial(whole, work, -1)
    print(json.dumps({"seed": -1, **healthy}), flush=True)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_BYTES,) * 2)
    started = time.monotonic()
    for seed in range(first, first + count):
        print(json.dumps({"begins": seed}), flush=True)
        signal.alarm(TRIAL_SECONDS)
        print(json.dumps({"seed": seed, **trial(whole, work, seed)}), flush=True)
        if time.monotonic() - started > seconds:
            break
    signal.alarm(0)


def judge(lines: list[str]) -> tuple[Counter[str], list[str]]:
    """How often uses ended in which way, and what must not happen."""
    ends: Counter[str] = Counter()
    faults = []
    for line in lines:
        found = msgspec.json.decode(line, type=dict[str, Any])
        if "begins" in found:
            continue
        for name, end in found.items():
            if name in ("seed", "damage"):
                continue
            ends["UNTYPED" if end.startswith("UNTYPED") else end] += 1
            if end.startswith("UNTYPED") or (found["seed"] < 0 and end != "passed"):
                faults.append(f"seed {found['seed']} ({found['damage']}): {name}: {end}")
    return ends, faults


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6]))

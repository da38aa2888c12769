"""Compare `tokenmill build` with the bound (the engine alone), its peers, and its memory limit.

It has three parts, each a table with the target next to the measured value:

- bound: the build's wall time divided by the engine's own time on the same documents, per format.
  The engine is the one that the build chose; the ratio to the fastest engine is shown, too. The
  final wait for fsync is reported separately, because it measures the disk.
- peers: the peer's wall time divided by the build's, both whole processes on the same JSONL files.
- memory: the largest summed PSS of the build's processes on a quarter of the text, on all of it
  and on four copies of it. Flat means bounded. Four copies contain no new words, so the quarter and
  the whole show the cost of new text, and the copies show the cost of length.

Inputs are read once before each part, so all contenders find them in the page cache.

    pip install gigatoken==0.10.0  # for the bound; the peer has its own environment
    sh bench/peers/setup.sh PEERS
    python bench/corpus.py --out LARGE
    python bench/corpus.py --out SMALL --from-jsonl corpus/*.jsonl.zst --variants
    python bench/compare.py --large LARGE --small SMALL --peers PEERS \\
        --tokenizer tokenizer.json --work WORK
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import measure
from bound import bound
from build import Build, Builder, add_options, builder, files_of

PARTS = ("bound", "peers", "memory")
ARRANGEMENTS = (("gigatoken", "processes", 8.0), ("fastokens", "processes", 8.0))
BOUND_TARGETS = {"jsonl": 1.5, "parquet": 1.7, "zst": 1.6, "gz": 1.9}
MEMORY_TARGET = 0.7e9
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Peer:
    """A tool to compare with, in its own environment."""

    name: str
    environment: str
    script: str
    output: str
    """Option that names the output."""
    takes_folder: bool
    small_target: float | None
    large_target: float | None

    def command(self, peers: Path, folder: Path, tokenizer: Path, out: Path) -> list[str]:
        python = peers / self.environment / "bin" / "python"
        inputs = [folder] if self.takes_folder else files_of(folder)
        command = [str(python), str(HERE / "peers" / self.script), "--tokenizer", str(tokenizer)]
        return [*command, self.output, str(out / "peer"), *map(str, inputs)]


MEGATRON = Peer(
    "Megatron steps with gigatoken",
    "megatron",
    "megatron_gigatoken.py",
    "--out-prefix",
    takes_folder=False,
    small_target=4.0,
    large_target=5.0,
)
GIGATOKEN = Peer(
    "gigatoken encode_files",
    "gigatoken",
    "gigatoken_files.py",
    "--out",
    takes_folder=False,
    small_target=0.7,
    large_target=2.0,
)
DATATROVE = Peer(
    "datatrove DocumentTokenizer",
    "datatrove",
    "datatrove_tokens.py",
    "--out",
    takes_folder=True,
    small_target=20.0,
    large_target=40.0,
)
PEERS = {"megatron": MEGATRON, "gigatoken": GIGATOKEN, "datatrove": DATATROVE}


def verdict(value: float, target: float | None, *, at_most: bool) -> str:
    if target is None:
        return "-"
    met = value <= target if at_most else value >= target
    return f"{target:g} {'met' if met else 'MISSED'}"


def compare_with_bound(options: argparse.Namespace, tokenmill: Builder) -> dict[str, Any]:
    formats = [name for name in BOUND_TARGETS if (options.large / name).is_dir()]
    for name in formats:
        measure.warm(files_of(options.large / name))
    sources = files_of(options.large / "jsonl")
    workers = len(os.sched_getaffinity(0))

    def engine_alone(engine: str, mode: str, batch_mb: float) -> Callable[[], dict[str, Any]]:
        return lambda: bound(sources, options.tokenizer, engine, mode, batch_mb, workers)

    def whole_build(name: str) -> Callable[[], Build]:
        return lambda: tokenmill.build(files_of(options.large / name))

    engines = {f"{e} {m} {b:g} MB": engine_alone(e, m, b) for e, m, b in ARRANGEMENTS}
    contenders: dict[str, Callable[[], Any]] = dict(engines)
    contenders.update({name: whole_build(name) for name in formats})
    runs = measure.interleave(contenders, options.rounds)
    alone = {
        engine: [run["seconds"] for run in runs[f"{engine} {mode} {size:g} MB"]]
        for engine, mode, size in ARRANGEMENTS
    }
    engine_rows = []
    for name in engines:
        seconds = statistics.median(run["seconds"] for run in runs[name])
        cpu = statistics.median(run["cpu_seconds"] for run in runs[name])
        speed = runs[name][0]["bytes"] / 1e6 / seconds
        engine_rows.append([name, f"{seconds:.2f}", f"{speed:.0f}", f"{cpu:.2f}"])
    print("\n## The bound: the engine alone\n")
    print(measure.table(["arrangement", "seconds", "MB/s", "CPU s"], engine_rows))
    print("\n## tokenmill build against the bound\n")
    header = ["format", "seconds", "MB/s", "CPU s", "fsync s", "ratio", "without fsync"]
    header += ["to the fastest", "target"]
    total = runs[next(iter(engines))][0]["bytes"]
    rows = [_bound_row(name, runs[name], alone, total) for name in formats]
    print(measure.table(header, rows))
    return {name: [_plain(run) for run in group] for name, group in runs.items()}


def _bound_row(
    name: str, builds: Sequence[Build], alone: dict[str, list[float]], total: int
) -> list[str]:
    chosen = alone[builds[0].engine]
    fastest = [min(times) for times in zip(*alone.values(), strict=True)]
    seconds = [run.seconds for run in builds]
    busy = [run.seconds - run.fsync_seconds for run in builds]
    ratio, busy_ratio = measure.ratio(seconds, chosen), measure.ratio(busy, chosen)
    return [
        name,
        f"{statistics.median(seconds):.2f}",
        f"{total / 1e6 / statistics.median(seconds):.0f}",
        f"{statistics.median(run.cpu_seconds for run in builds):.2f}",
        f"{statistics.median(run.fsync_seconds for run in builds):.2f}",
        f"{ratio:.2f}",
        f"{busy_ratio:.2f}",
        f"{measure.ratio(seconds, fastest):.2f}",
        verdict(busy_ratio, BOUND_TARGETS[name], at_most=True),
    ]


def compare_with_peers(options: argparse.Namespace, tokenmill: Builder) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for size, data in (("small", options.small), ("large", options.large)):
        if data is None:
            continue
        folder = data / "jsonl"
        megabytes = measure.warm(files_of(folder)) / 1e6
        runs = _peer_runs(options, tokenmill, folder)
        print(f"\n## Peers on {megabytes:.0f} MB of JSONL\n")
        own = runs["tokenmill"]
        rows = []
        for name, group in runs.items():
            ratio = measure.ratio([run.seconds for run in group], [run.seconds for run in own])
            target = getattr(PEERS[name], f"{size}_target") if name in PEERS else None
            rows.append(
                [
                    PEERS[name].name if name in PEERS else name,
                    f"{statistics.median(run.seconds for run in group):.2f}",
                    f"{statistics.median(run.cpu_seconds for run in group):.2f}",
                    f"{max(run.peak_bytes for run in group) / 1e9:.2f}",
                    f"{ratio:.2f}",
                    verdict(ratio, target, at_most=False),
                ]
            )
        header = ["tool", "seconds", "CPU s", "peak GB", "tokenmill is x faster", "target"]
        print(measure.table(header, rows))
        found[size] = {name: [_plain(run) for run in group] for name, group in runs.items()}
    return found


def _peer_runs(
    options: argparse.Namespace, tokenmill: Builder, folder: Path
) -> dict[str, list[Any]]:
    def peer_run(peer: Peer) -> Callable[[], measure.Run]:
        def once() -> measure.Run:
            shutil.rmtree(options.work / "peer", ignore_errors=True)
            (options.work / "peer").mkdir()
            command = peer.command(options.peers, folder, options.tokenizer, options.work / "peer")
            run = measure.run(command)
            shutil.rmtree(options.work / "peer")
            return run

        return once

    contenders: dict[str, Callable[[], Any]] = {
        "tokenmill": lambda: tokenmill.build(files_of(folder), hz=10.0)
    }
    contenders.update({name: peer_run(PEERS[name]) for name in options.only_peers})
    slow = {name: contenders.pop(name) for name in options.slow_peers if name in contenders}
    runs = measure.interleave(contenders, options.rounds)
    return {**runs, **measure.interleave(slow, 1)}


def check_memory(options: argparse.Namespace, tokenmill: Builder) -> dict[str, Any]:
    sources = files_of(options.large / "jsonl")
    copies = options.work / "copies"
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()
    for number in range(4):
        for source in sources:
            _link(source, copies / f"part-{number}-{source.name}")
    cases = {
        "a quarter": sources[: len(sources) // 4],
        "all": sources,
        "four copies": files_of(copies),
    }
    rows, found = [], {}
    for name, inputs in cases.items():
        size = sum(path.stat().st_size for path in inputs)
        build = tokenmill.build(inputs, hz=20.0)
        found[name] = _plain(build)
        rows.append(
            [
                name,
                f"{size / 1e9:.2f}",
                f"{build.seconds:.2f}",
                f"{build.peak_bytes / 1e9:.2f}",
                verdict(build.peak_bytes / 1e9, MEMORY_TARGET / 1e9, at_most=True),
            ]
        )
    shutil.rmtree(copies)
    print("\n## Peak memory of the build (PSS, all processes)\n")
    print(measure.table(["input", "GB", "seconds", "peak GB", "target GB"], rows))
    return found


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _plain(run: Any) -> dict[str, Any]:
    return run if isinstance(run, dict) else {**asdict(run), "output": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--large", type=Path, required=True, help="folder by corpus.py, >= 1 GB")
    parser.add_argument("--small", type=Path, help="folder by corpus.py, about 150 MB")
    parser.add_argument("--peers", type=Path, help="folder of environments by peers/setup.sh")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only-peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument(
        "--slow-peers", nargs="*", choices=PEERS, default=["datatrove"], help="run only once"
    )
    add_options(parser)
    options = parser.parse_args()
    if "peers" in options.parts and options.peers is None:
        parser.error("--peers FOLDER is needed to compare with peers (see peers/setup.sh)")

    tokenmill = builder(options)
    parts = {"bound": compare_with_bound, "peers": compare_with_peers, "memory": check_memory}
    packages = ["tokenmill", "gigatoken", "fastokens", "tokenizers", "pyarrow", "numpy"]
    facts = {"machine": measure.machine(), "versions": measure.versions(packages)}
    print(" · ".join(f"{name} {value}" for part in facts.values() for name, value in part.items()))
    results = {part: parts[part](options, tokenmill) for part in options.parts}
    if options.json:
        options.json.write_text(json.dumps({**facts, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Measure a build's start-up time and its slope: the fixed cost, and the cost per further GB.

Start: commands with hardly any work, from an empty interpreter to a build of 1 MB, interleaved. CPU
time of the main process and of its workers is separate, and builds also report the stages in their
`run.json`. Finally, a build of 1 MB is compared with a program that only loads fastokens and
encodes the same text. A first round that does not count leaves compiled modules in WORK, like those
of an installed package, even if PYTHONDONTWRITEBYTECODE is set.

Slope (`--slope`): builds of a quarter of the files (2 of 8) and of all files, and the engine alone
in as many processes on the same documents, with its best batch size. The difference in time divided
by the difference in text is seconds per GB, without start-up. The corpus should not repeat text.

    python bench/start.py --tokenizer tokenizer.json --work WORK corpus/part-0.jsonl
    python bench/start.py --slope --tokenizer tokenizer.json --work WORK LARGE/jsonl/*
    python bench/start.py --slope ... LARGE --formats jsonl parquet zst gz    # LARGE: of corpus.py
    python bench/start.py --slope ... --history "C jsonl" LARGE/jsonl/*    # appends to history.csv
    python bench/start.py ... --history "GPT-2" corpus/part-0.jsonl        # the start's ratios
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import history
import measure
from bound import bound, texts
from build import Build, Builder, add_options, builder, files_of

VERSIONS = ("tokenmill", "fastokens", "pyarrow", "backports.zstd", "isal")
BATCHES_MB = (0.25, 1.0, 8.0)
ENGINE_ALONE = """
import json, sys
from fastokens import Tokenizer
engine = Tokenizer.from_json_str(open(sys.argv[1], encoding="utf-8").read())
engine.encode_batch_flat([json.loads(line)["text"] for line in open(sys.argv[2], "rb")])
"""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Started:
    """One finished command."""

    seconds: float
    own_cpu: float
    """Of the process itself."""
    children_cpu: float
    """Of the processes that it has waited for."""
    books: dict[str, float]
    """Of a build: seconds by stage, as it recorded them."""


def started(command: Sequence[str], out: Path, environment: dict[str, str]) -> Started:
    """Run a command that may make a dataset in `out`, which is removed again."""
    shutil.rmtree(out, ignore_errors=True)
    before = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    ended = os.waitid(
        os.P_PID, process.pid, os.WEXITED | os.WNOWAIT
    )  # it keeps its books till then
    seconds = time.perf_counter() - before
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    process.wait()
    if ended is None or ended.si_status:
        raise measure.CommandFailed(f"exit status {process.returncode}: {' '.join(command)}")
    own, children = (sum(map(int, stat[at : at + 2])) / TICKS for at in (11, 13))
    record = out / "run.json"
    books = json.loads(record.read_text())["seconds"] if record.exists() else {}
    return Started(seconds, own, children, books)


def first_bytes(path: Path, size: int, out: Path) -> Path:
    """The first documents of a file, about `size` bytes of text, as JSON Lines."""
    with out.open("w") as file:
        for text in texts(path):
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            if file.tell() >= size:
                return out
    return out


def measure_start(options: argparse.Namespace, tokenmill: Builder) -> None:
    out = options.work / "started"
    first = options.inputs[0]
    document = first_bytes(first, 1, options.work / "document.jsonl")
    megabyte = first_bytes(first, 1_000_000, options.work / "megabyte.jsonl")
    build = [*tokenmill.command, "build", "--tokenizer", str(options.tokenizer)]
    build += [*tokenmill.arguments, "--out", str(out)]
    alone = [sys.executable, "-c", ENGINE_ALONE, str(options.tokenizer)]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import tokenmill": [sys.executable, "-c", "import tokenmill"],
        "tokenmill --help": [*tokenmill.command, "--help"],
        "tokenmill build --help": [*tokenmill.command, "build", "--help"],
        "build of one document": [*build, str(document)],
        "build of 1 MB": [*build, str(megabyte)],
        "build of 1 MB, 1 worker": [*build, "--workers", "1", str(megabyte)],
        "the engine alone, 1 MB": [*alone, str(megabyte)],
    }
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str((options.work / "pycache").resolve())}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    contenders = {
        name: functools.partial(started, command, out, environment)
        for name, command in commands.items()
    }
    measure.interleave(contenders, 1)
    runs = measure.interleave(contenders, options.rounds)
    shutil.rmtree(out, ignore_errors=True)
    rows = [_start_row(name, group) for name, group in runs.items()]
    header = ["command", "seconds", "CPU s", "of workers", "stages of the build"]
    print(measure.table(header, rows))
    ours, engine = runs["build of 1 MB"], runs["the engine alone, 1 MB"]
    wall, cpu = (_median(ours, figure) / _median(engine, figure) for figure in (_wall, _used))
    print(f"\nstart of 1 MB / engine alone: {wall:.2f} (CPU {cpu:.2f})")
    if options.history:
        cores = f"{options.workers} cores"
        for name, value in (("start of 1 MB", wall), ("start of 1 MB, CPU", cpu)):
            print(history.add(f"{name} / engine alone, {options.history}", value, cores))


def _median(runs: Sequence[Any], figure: Callable[[Any], float]) -> float:
    return statistics.median(map(figure, runs))


def _used(run: Started) -> float:
    return run.own_cpu + run.children_cpu


def _start_row(name: str, runs: Sequence[Started]) -> list[str]:
    def median(figure: Callable[[Started], float]) -> str:
        return f"{_median(runs, figure):.2f}"

    stages = {
        stage: statistics.median(run.books.get(stage, 0.0) for run in runs)
        for stage in runs[0].books
    }
    return [
        name,
        median(lambda run: run.seconds),
        median(_used),
        median(lambda run: run.children_cpu),
        ", ".join(f"{stage} {spent:.2f}" for stage, spent in stages.items()),
    ]


@dataclass(frozen=True)
class Slope:
    """Seconds a GB of text, from a quarter of the files to all."""

    wall: float
    cpu: float

    @classmethod
    def between(cls, few: Sequence[Any], all_: Sequence[Any], gigabytes: float) -> Slope:
        """From runs that have `seconds` and `cpu_seconds`; medians over the rounds."""
        wall, cpu = (
            statistics.median(
                figure(long) - figure(short) for short, long in zip(few, all_, strict=True)
            )
            for figure in (_wall, _cpu)
        )
        return cls(wall / gigabytes, cpu / gigabytes)


def _wall(run: Any) -> float:
    return float(run.seconds if isinstance(run, Build | Started) else run["seconds"])


def _cpu(run: Any) -> float:
    return float(run.cpu_seconds if isinstance(run, Build) else run["cpu_seconds"])


def measure_slope(options: argparse.Namespace, tokenmill: Builder) -> None:
    inputs = {"build": sorted(options.inputs)}
    if options.formats:
        inputs = {name: files_of(options.inputs[0] / name) for name in options.formats}
    engines = {f"engine {size:g} MB": size for size in options.batch_mb}
    contenders: dict[str, Callable[[], Any]] = {}
    for part in ("few", "all"):
        chosen = {
            name: paths[: max(len(paths) // 4, 1)] if part == "few" else paths
            for name, paths in inputs.items()
        }
        for name, paths in chosen.items():
            measure.warm(paths)
            contenders[f"{part}, {name}"] = functools.partial(tokenmill.build, paths)
        documents = next(iter(chosen.values()))
        for name, size in engines.items():
            contenders[f"{part}, {name}"] = functools.partial(
                bound,
                documents,
                options.tokenizer,
                options.engine,
                "processes",
                size,
                options.workers,
            )
    runs = measure.interleave(contenders, options.rounds)
    _print_slope(options, runs, list(inputs), list(engines))


def _print_slope(
    options: argparse.Namespace,
    runs: dict[str, list[Any]],
    builds: Sequence[str],
    engines: Sequence[str],
) -> None:
    few, all_ = (runs[f"{part}, {engines[0]}"][0]["bytes"] / 1e9 for part in ("few", "all"))
    header = ["", f"{few:.3f} GB: s", "CPU s", f"{all_:.3f} GB: s", "CPU s", "s/GB", "CPU s/GB"]
    rows, slopes = [], {}
    for name in (*builds, *engines):
        groups = [runs[f"{part}, {name}"] for part in ("few", "all")]
        slopes[name] = slope = Slope.between(*groups, all_ - few)
        medians = [_median(group, f) for group in groups for f in (_wall, _cpu)]
        figures = [*medians, slope.wall, slope.cpu]
        rows.append([name, *(f"{figure:.2f}" for figure in figures)])
    print(measure.table(header, rows))
    for name in builds:
        _print_ratios(options, runs, name, engines, slopes, all_)


def _print_ratios(
    options: argparse.Namespace,
    runs: dict[str, list[Any]],
    name: str,
    engines: Sequence[str],
    slopes: dict[str, Slope],
    gigabytes: float,
) -> None:
    """One build against the engine alone at its best batch size."""
    wall = slopes[name].wall / min(slopes[engine].wall for engine in engines)
    cpu = slopes[name].cpu / min(slopes[engine].cpu for engine in engines)
    at_once = _median(runs[f"all, {name}"], _wall) / min(
        _median(runs[f"all, {engine}"], _wall) for engine in engines
    )
    chosen = runs[f"all, {name}"][0].engine
    if chosen != options.engine:
        print(f"\nThe build chose {chosen}: give --engine {chosen}, or read no ratio from this.")
    print(f"\n{name}: slope / engine alone {wall:.2f} (CPU {cpu:.2f}); with start {at_once:.2f}")
    if options.history:
        cores = f"{gigabytes * 1e3:.0f} MB, {options.workers} cores"
        corpus = f"{options.history} {name}" if options.formats else options.history
        for figure, value in (("slope", wall), ("slope, CPU", cpu), ("whole", at_once)):
            print(history.add(f"{figure} / engine alone, {corpus}", value, cores))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("inputs", nargs="+", type=Path, help=".jsonl, .jsonl.zst, .gz, .parquet")
    parser.add_argument(
        "--formats",
        nargs="+",
        choices=("jsonl", "parquet", "zst", "gz"),
        help="with --slope: those below the one folder that corpus.py made, side by side",
    )
    parser.add_argument("--slope", action="store_true", help="seconds a GB instead of the start")
    parser.add_argument("--engine", default="fastokens", help="that the build chooses")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch-mb", nargs="+", type=float, default=list(BATCHES_MB))
    parser.add_argument("--history", metavar="CORPUS", help="append the ratios to history.csv")
    add_options(parser)
    options = parser.parse_args()
    tokenmill = builder(options)
    print({**measure.machine(), **measure.versions(VERSIONS)})
    (measure_slope if options.slope else measure_start)(options, tokenmill)


if __name__ == "__main__":
    main()

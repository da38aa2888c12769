"""Measure whole processes: wall seconds, CPU seconds and peak memory of a command and its children.

Every number in `bench/` comes from `run`, so all tools are measured in the same way: in a fresh
process, including start-up and child processes. Three rules reduce the noise of a busy machine:

- contenders are interleaved (A B A B), never measured one after the other;
- the median is reported, and a ratio is the median of the ratios within each round;
- memory is the *proportional* set size (PSS) summed over the process tree, so that pages which
  processes share are counted once. Files mapped into memory count while they are mapped.

As a program, it measures the given commands, separated by `--`:

    python bench/measure.py --rounds 3 -- python a.py --x 1 -- python b.py
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

PR_SET_CHILD_SUBREAPER = 36
ORPHAN_SECONDS = 10.0
"""How long orphans of a finished command may live before the run is called broken."""


@dataclass(frozen=True)
class Run:
    """One finished command."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    """Largest sum of PSS over the process tree that was seen; 0 when memory was not sampled."""
    samples: int
    output: str
    """Standard output and standard error together."""


class CommandFailed(RuntimeError):
    """A measured command returned an error, so its numbers mean nothing."""


class MemorySampler(threading.Thread):
    """Sums the PSS of a process and its descendants, `hz` times a second.

    Reading PSS walks page tables, which costs about 6 ms per GB of the measured process. The
    sampler therefore rests 20 times as long as a sample took, and disturbs at most 5 % of a core.
    """

    def __init__(self, root: int, hz: float) -> None:
        super().__init__(daemon=True)
        self.root, self.period = root, 1.0 / hz
        self.peak_bytes = 0
        self.samples = 0
        self.finished = threading.Event()

    def run(self) -> None:
        while not self.finished.is_set():
            started = time.perf_counter()
            self.peak_bytes = max(self.peak_bytes, sum(map(pss_bytes, process_tree(self.root))))
            self.samples += 1
            took = time.perf_counter() - started
            self.finished.wait(max(self.period - took, 20 * took))


def process_tree(root: int) -> list[int]:
    """`root` and all its living descendants, orphans adopted by this process included."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text(errors="replace")
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry))
    found = children.get(os.getpid(), []) + [root]
    for pid in found:
        found.extend(child for child in children.get(pid, []) if child not in found)
    return list(dict.fromkeys(found))


def pss_bytes(pid: int) -> int:
    """Proportional set size of one process; 0 when it has just ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            for line in lines:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run(
    command: Sequence[str], environment: Mapping[str, str] | None = None, hz: float = 10.0
) -> Run:
    """Run `command` to its end and measure it; `hz=0` leaves memory alone.

    Orphans are adopted and waited for, so the CPU time of a fork server's workers is counted too.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile() as log:
        before = _cpu_of_children()
        started = time.perf_counter()
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        sampler = MemorySampler(process.pid, hz) if hz else None
        if sampler:
            sampler.start()
        code = process.wait()
        seconds = time.perf_counter() - started
        if sampler:
            sampler.finished.set()
            sampler.join()
        _reap_orphans()
        log.seek(0)
        output = log.read().decode("utf-8", "replace")
    if code:
        raise CommandFailed(f"exit status {code}: {' '.join(command)}\n{output[-4000:]}")
    return Run(
        seconds=seconds,
        cpu_seconds=_cpu_of_children() - before,
        peak_bytes=sampler.peak_bytes if sampler else 0,
        samples=sampler.samples if sampler else 0,
        output=output,
    )


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _reap_orphans() -> None:
    deadline = time.monotonic() + ORPHAN_SECONDS
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > deadline:
                raise CommandFailed(f"the command left processes running after {ORPHAN_SECONDS} s")
            time.sleep(0.01)


def interleave(
    contenders: Mapping[str, Callable[[], Result]], rounds: int
) -> dict[str, list[Result]]:
    """Run every contender once per round, in turn: A B A B, so that noise meets all of them."""
    results: dict[str, list[Result]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, contender in contenders.items():
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr)
            results[name].append(contender())
    return results


def median_seconds(runs: Sequence[Run]) -> float:
    return statistics.median(run.seconds for run in runs)


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median over the rounds of one figure divided by the other; of medians where rounds differ."""
    if len(numerators) != len(denominators):
        return statistics.median(numerators) / statistics.median(denominators)
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def warm(paths: Sequence[Path]) -> int:
    """Read files once, so that every contender finds them in the page cache; returns the bytes."""
    total = 0
    for path in paths:
        with open(path, "rb", buffering=0) as stream:
            while block := stream.read(1 << 24):
                total += len(block)
    return total


def machine() -> dict[str, str]:
    """What a reader needs to judge the numbers: processor, cores, memory, system, date."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def versions(packages: Sequence[str], python: str = sys.executable) -> dict[str, str]:
    """Installed versions of `packages` in the environment of `python`; absent ones are left out."""
    code = (
        "import json, sys, importlib.metadata as m\n"
        "found = {d.metadata['Name'].lower().replace('_', '-'): d.version"
        " for d in m.distributions()}\n"
        "found['python'] = sys.version.split()[0]\n"
        "print(json.dumps(found))"
    )
    found = json.loads(subprocess.check_output([python, "-c", code], text=True))
    return {name: found[name] for name in ("python", *packages) if name in found}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: first column left, the others right."""
    marks = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def main() -> None:
    own, *commands = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hz", type=float, default=10.0, help="memory samples a second, 0 = none")
    parser.add_argument("--json", action="store_true", help="print every run as JSON")
    options = parser.parse_args(own)
    if not commands:
        parser.error("no command given: measure.py [options] -- COMMAND [-- COMMAND...]")

    names = [f"{number}: {' '.join(command)[:70]}" for number, command in enumerate(commands)]
    contenders = {
        name: lambda command=command: run(command, hz=options.hz)
        for name, command in zip(names, commands, strict=True)
    }
    runs = interleave(contenders, options.rounds)
    if options.json:
        print(json.dumps({name: [asdict(r) for r in group] for name, group in runs.items()}))
        return
    print(machine())
    rows = [
        [
            name,
            f"{median_seconds(group):.2f}",
            f"{statistics.median(r.cpu_seconds for r in group):.2f}",
            f"{max(r.peak_bytes for r in group) / 1e9:.2f}",
            f"{ratio([r.seconds for r in group], [r.seconds for r in runs[names[0]]]):.2f}",
        ]
        for name, group in runs.items()
    ]
    print(table(["command", "seconds", "CPU s", "peak GB", "ratio to 0"], rows))


def _split(arguments: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for argument in arguments:
        if argument == "--":
            groups.append([])
        else:
            groups[-1].append(argument)
    return groups


if __name__ == "__main__":
    main()

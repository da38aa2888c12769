"""Damages bytes and hands them to a parser, in a process of its own that a damage may crash.

A target is a module of this folder with these functions:

    seeds() -> dict[str, bytes]              whole files by name
    check(name, data, folder) -> str         parse the damaged file; return what came of it in a
                                             word or two; raise for what must not happen
    mutate(rng, data) -> bytes               damage a file, if `mutate` of this module is not enough

Case number n is the same in every run, so a number is enough to find its bytes again.
"""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

EDGES = (0, 1, 127, 128, 254, 255)
CASES_AT_ONCE = 500
MAX_SECONDS = 240
"""For all cases of a process: one that hangs is killed, and counts as a crash."""
SOAK_SECONDS = 150
"""For each of four fuzzers: ten minutes in all."""
CONTAINED = "contained crash"
"""The outcome of a case whose bytes are worth keeping, though it is not a fault."""


@dataclass
class Findings:
    """What came of all cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    """What must not happen, each with the file that holds its bytes."""


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Damage mostly one byte, sometimes up to eight; now and then cut or repeat a part."""
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 1, 2, 8])):
        place = rng.randrange(len(damaged))
        bit = damaged[place] ^ 1 << rng.randrange(8)
        damaged[place] = rng.choice([bit, bit, rng.choice(EDGES), rng.randrange(256)])
    kind = rng.randrange(40)
    start, stop = sorted(rng.choices(range(len(damaged) + 1), k=2))
    if kind == 0:
        del damaged[stop:]
    elif kind == 1:
        damaged[start:start] = damaged[start:stop]
    return bytes(damaged)


def case(target: ModuleType, number: int) -> tuple[str, bytes]:
    """The name of a seed and its damaged bytes."""
    rng, seeds = random.Random(number), target.seeds()
    name = rng.choice(sorted(seeds))
    return name, getattr(target, "mutate", mutate)(rng, seeds[name])


def fuzz(target: str, first: int, count: int, crash_dir: Path) -> Findings:
    """Run cases in child processes; the bytes of each that must not happen become a file."""
    findings = Findings()
    stop = first + count
    while first < stop:
        first = _run(target, first, min(stop, first + CASES_AT_ONCE), crash_dir, findings)
    return findings


def fuzz_for(target: str, seconds: float, crash_dir: Path) -> Findings:
    """Run cases that no earlier run had, for some time."""
    findings = Findings()
    end = time.monotonic() + seconds
    first = time.time_ns()
    while time.monotonic() < end:
        first = _run(target, first, first + CASES_AT_ONCE, crash_dir, findings)
    return findings


def _run(target: str, first: int, stop: int, crash_dir: Path, findings: Findings) -> int:
    """Run cases in one process; returns the first that is left, if it has died."""
    arguments = [target, str(first), str(stop)]
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", __file__, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    watchdog = threading.Timer(MAX_SECONDS, process.kill)
    watchdog.start()
    output, told = process.communicate()
    watchdog.cancel()
    lines = output.splitlines()
    for number, line in enumerate(lines, start=first):
        outcome, _, detail = line.partition("\t")
        findings.outcomes[outcome] += 1
        if outcome == "FAULT":
            findings.faults.append(f"{detail}: {_keep(target, number, crash_dir)}")
        elif outcome == CONTAINED:
            _keep(target, number, crash_dir)
    number = first + len(lines)
    if process.returncode == 0 and number == stop:
        return stop
    findings.outcomes["CRASH"] += 1
    kept = _keep(target, number, crash_dir)
    findings.faults.append(f"exit code {process.returncode}: {kept}: {told[-2000:]}")
    return number + 1


def _keep(target: str, number: int, crash_dir: Path) -> Path:
    name, data = case(importlib.import_module(target), number)
    path = crash_dir / f"{target}-{number}-{name.replace('/', '-')}"
    path.write_bytes(data)
    return path


def main() -> None:
    """Run the cases [first, stop) of a target, and print a line for each."""
    target, first, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    sys.path.insert(0, str(Path(__file__).parents[1]))
    module = importlib.import_module(target)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, stop):
            try:
                outcome = module.check(*case(module, number), Path(folder))
            except Exception:
                outcome = "FAULT\t" + " | ".join(traceback.format_exc().splitlines()[-3:])
            print(outcome, flush=True)


if __name__ == "__main__":
    main()

"""Measure the CPU time of the main process per unit, with workers that sleep instead of encode.

    python bench/fleet.py --workers 64 --units 20000 --seconds 0.5 2

Session, pool, queue, ledger, progress, receipts, processes, pipes and messages are real, in a real
folder. Workers send the usual messages: loaded, calibrated, progress at the requested rate,
encoded, and an outcome with the receipt of a unit of 512 MiB. With up to 16 workers, it has the
texts of its audit, which compares equal ids: the time of the reference is not included.

A unit costs the main process `a + b x seconds of its worker`: a once per unit, and b for as long as
the worker is busy. Two sleep times separate the two.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import shutil
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import measure
from tokenmill.core.child import Child, Program
from tokenmill.core.records import TokenBatch
from tokenmill.encode.exactness import Exam
from tokenmill.encode.words.splits import Split
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.source import Source
from tokenmill.read.units import Unit, unit_key
from tokenmill.run.executor import Phase
from tokenmill.run.job import Count, Job, Setup
from tokenmill.run.journal.ledger import Ledger
from tokenmill.run.machine import Resources
from tokenmill.run.pool import WorkerPool
from tokenmill.run.progress import ProgressBoard
from tokenmill.run.running import AUDITED_BY_MAIN
from tokenmill.run.session import Session
from tokenmill.run.work import WorkQueue
from tokenmill.run.workspace import Workspace
from tokenmill.store.objects.folder import FolderStore

UNIT_BYTES = 512 << 20


class Sleepers(WorkerPool):
    """Worker processes that sleep."""

    def __init__(self, resources: Resources, seconds: float, audited: int) -> None:
        super().__init__(resources)
        self._environment = {"SLEEP_SECONDS": str(seconds), "SLEEP_AUDITED": str(audited)}

    def _spawn(self) -> Child:
        program = Program(
            module="sleeping_worker", task="sleeps", replies=None,
            environment=self._environment,
        )  # fmt: skip
        self._children.append(Child(program))
        return self._children[-1]


class Same:
    """A reference that finds what was sent."""

    name = "reference"

    def encode(self, texts: Any) -> TokenBatch:
        ids = np.tile(np.array([1, 2, 3] * 300, np.uint32), len(texts))
        return TokenBatch(ids, np.arange(len(texts) + 1) * 900)


def run(options: argparse.Namespace, seconds: float, folder: Path) -> dict[str, float]:
    """CPU seconds of this process for a unit, and how busy it was."""
    resources = Resources(options.workers, "", 64 << 30, 2)
    executor = Sleepers(resources, seconds, options.audited)
    keys = [unit_key(number // 2, number % 2) for number in range(options.units)]
    items = [Unit(key, (Extent(int(key[:8])),), UNIT_BYTES) for key in keys]
    sources = [source_of(index) for index in range(-(-options.units // 2))]
    ledger = Ledger(FolderStore(folder), items)
    board = ProgressBoard(options.units * UNIT_BYTES, 4, [])
    fields = Fields("text")
    given: Any = SimpleNamespace(sources=sources, fields=fields, resources=resources)
    queue = WorkQueue(
        given, Workspace(folder), ledger, items, lambda key: key not in ledger.finished
    )
    exam: Future[Exam] = Future()
    exam.set_result(Exam(["a text"], TokenBatch(np.zeros(2, np.uint32), np.array([0, 2]))))
    split = Split("", None, None, True)
    task = Count(split=split, by=None, groups=[], column="", min_count=1, policies={})
    job = Job(task=task, fields=fields, engines=("engine",))
    setup = Setup(
        job=job,
        engine="engine",
        resources=resources,
        growth_bytes=1 << 30,
        audit_share=0.0,
        audits=options.workers > AUDITED_BY_MAIN,
        scratch="",
        out="",
    )
    phase = Phase(setup, sources, exam, Same())
    with executor:
        begun, wall = cpu_seconds(), time.monotonic()
        session = Session(executor, phase, queue, ledger, board, in_threads=True)
        profile = cProfile.Profile() if options.profile else None
        if profile:
            profile.runcall(session.run)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        else:
            session.run()
        spent, wall = cpu_seconds() - begun, time.monotonic() - wall
    assert ledger.is_complete(), "units are missing"
    return {"cpu": spent / options.units, "busy": spent / wall, "rate": options.units / wall}


def source_of(index: int) -> Source:
    name = f"part-{index:08d}.jsonl"
    size = 2 * UNIT_BYTES
    return Source(
        index=index, name=name, place="local", location=name, version=0, num_bytes=size,
        format="jsonl", path=Path("/nowhere") / name,
    )  # fmt: skip


def cpu_seconds() -> float:
    """Of this process and its threads, without its children."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--units", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.5])
    parser.add_argument("--audited", type=int, default=20, help="texts of 3.5 kB for each unit")
    parser.add_argument("--work", type=Path, help="folder for receipts (a temporary one)")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    print(measure.machine(), measure.versions(["tokenmill", "numpy", "psutil", "msgspec"]))
    rows = []
    for seconds in options.seconds:
        folder = Path(tempfile.mkdtemp(dir=options.work))
        try:
            found = run(options, seconds, folder)
        finally:
            shutil.rmtree(folder)
        per_unit, busy = f"{1e3 * found['cpu']:.2f}", f"{found['busy']:.0%}"
        row = [options.workers, options.units, seconds, per_unit, busy, round(found["rate"])]
        rows.append(list(map(str, row)))
    header = ["workers", "units", "sleep, s", "CPU ms a unit", "of a core", "units a second"]
    print(measure.table(header, rows))


if __name__ == "__main__":
    main()

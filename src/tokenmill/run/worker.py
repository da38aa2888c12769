"""A worker process: it loads an engine, takes the exam, and runs units one after another."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from tokenmill.core.child import Parent
from tokenmill.core.records import TokenBatch
from tokenmill.core.streams import lasting_streams
from tokenmill.encode.engine import Engine
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.exactness import Exam
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.run.job import Count, Setup
from tokenmill.run.messages import (
    Advanced,
    Assignment,
    Calibrate,
    Calibrated,
    Command,
    Crashed,
    Encoded,
    Loaded,
    Preload,
    Tally,
    failure,
)
from tokenmill.run.units.unit import FinishedUnit, UnitRunner

WITHIN_UNIT = 2
"""The multiple of its allowed growth at which a worker stops in the middle of a unit."""
LONG_BATCHES = 4
"""Batches larger than this multiple of the usual size hold a long record, and are not checked."""


class Worker:
    """Runs units. A second thread flushes finished units."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._finished: queue.SimpleQueue[FinishedUnit] = queue.SimpleQueue()
        self._reported = 0.0

    def run(self) -> None:
        """Handle commands until this process ends."""
        preloaded = None
        while not isinstance(setup := self._parent.receive()[0], Setup):
            preloaded = preload(setup)
        threading.Thread(target=self._commit_all, daemon=True).start()
        try:
            engine = preloaded.engine_for(setup) if preloaded else None
            runner = UnitRunner(setup, engine)
        except BaseException as error:
            self._parent.send(failure("", error))
            raise SystemExit(0) from None
        growth = Growth(setup.growth_bytes, setup.batch_bytes)
        loading = preloaded.seconds if preloaded and engine else 0.0
        self._parent.send(Loaded(loading + runner.startup_seconds))
        while True:
            command, _ = self._parent.receive()
            if isinstance(command, Calibrate):
                self._calibrate(runner, command)
            else:
                self._run_unit(runner, command, growth)

    def _calibrate(self, runner: UnitRunner, command: Calibrate) -> None:
        ids = np.array(command.ids, np.uint32)
        offsets = np.array(command.offsets, np.int64)
        try:
            runner.calibrate(Exam(command.texts, TokenBatch(ids, offsets)))
        except BaseException as error:
            self._parent.send(failure("", error))
        else:
            self._parent.send(Calibrated())

    def _run_unit(self, runner: UnitRunner, command: Assignment, growth: Growth) -> None:
        key, done = command.unit.key, Tally()

        def report(tally: Tally) -> None:
            nonlocal done
            done = tally
            growth.check(tally.bytes)
            # A careful unit reports at once that the announced document is done.
            now, seconds = time.monotonic(), runner.setup.report_seconds
            if command.careful or now - self._reported >= seconds:
                self._reported = now
                self._parent.send(Advanced(key, tally))

        try:
            finished = runner.run(command, report, self._parent.send)
        except GrownTooFar as error:
            name = next(each.name for each in command.sources if each.index == done.source)
            self._parent.send(
                Crashed(
                    key,
                    "a worker exceeded its share of memory",
                    why=f"grew by {error.grown_bytes:,} bytes; its share allows "
                    f"{error.allowed_bytes:,} per unit",
                    where=f"{name}, after position {done.position}",
                    hint="raise --memory or lower --workers; a Python tokenizer may leak memory",
                )
            )
            return
        except BaseException as error:
            self._parent.send(failure(key, error, runner.current_source))
        else:
            self._finished.put(finished)
        self._parent.send(Encoded(key, full=growth.is_full()))

    def _commit_all(self) -> None:
        while True:
            finished = self._finished.get()
            try:
                self._parent.send(finished.commit())
            except BaseException as error:
                self._parent.send(failure(finished.outcome.receipt.key, error))


@dataclass(frozen=True, slots=True)
class Preloaded:
    """An engine that was loaded while the main process still prepared the build.

    It is used only if it is exactly the one that the setup asks for later, loaded from the same
    bytes as the stored tokenizer.
    """

    order: Preload
    data: bytes
    engine: Engine
    seconds: float

    def engine_for(self, setup: Setup) -> Engine | None:
        """Return the engine if it is the one that a setup asks for."""
        task, order = setup.job.task, self.order
        if isinstance(task, Count):
            return None
        spec = task.tokenizer
        asked = (spec.kind, spec.encoding, spec.control_tokens, setup.engine)
        if asked != (order.kind, order.encoding, order.control_tokens, order.engine):
            return None
        if setup.resources.cache_bytes != order.cache_bytes:
            return None
        stored = Path(setup.tokenizer_dir, KINDS[order.kind].file_name)
        return self.engine if stored.read_bytes() == self.data else None


def preload(order: Preload) -> Preloaded | None:
    """Load an engine. None if that fails: loading it again for the setup raises the error."""
    started = time.perf_counter()
    # The first unit needs this module at its end. Engines release the GIL while they load.
    threading.Thread(target=importlib.import_module, args=("pyarrow.parquet",), daemon=True).start()
    with contextlib.suppress(Exception):
        data = Path(order.path).read_bytes()
        file = TokenizerFile(order.kind, data, order.encoding)
        engine = load_engine(order.engine, file, order.control_tokens, order.cache_bytes)
        engine.encode(["a"])  # the first call of some engines is slow
        return Preloaded(order, data, engine, time.perf_counter() - started)
    return None


class GrownTooFar(Exception):
    """Ends a unit because the worker's memory has grown too much."""

    def __init__(self, grown_bytes: int, allowed_bytes: int) -> None:
        super().__init__(grown_bytes)
        self.grown_bytes, self.allowed_bytes = grown_bytes, allowed_bytes


class Growth:
    """Measures by how much the memory in use has grown since the worker was ready.

    Memory that the allocator keeps for later is released first.
    """

    def __init__(self, growth_bytes: int, batch_bytes: int) -> None:
        self._growth_bytes = growth_bytes
        self._batch_bytes = batch_bytes
        self._done_bytes = 0
        self._process = psutil.Process()
        self._ready_bytes = self._alive_bytes()

    def check(self, done_bytes: int) -> None:
        """Raise GrownTooFar after a batch if the unit cannot continue in this process.

        `done_bytes` counts the bytes of the unit so far.
        """
        long = done_bytes - self._done_bytes > LONG_BATCHES * self._batch_bytes
        self._done_bytes = done_bytes
        allowed = WITHIN_UNIT * self._growth_bytes
        if not long and (grown_bytes := self._beyond(allowed)):
            raise GrownTooFar(grown_bytes, allowed)

    def is_full(self) -> bool:
        """Return, after a unit, whether a fresh process should replace this one."""
        self._done_bytes = 0
        return self._beyond(self._growth_bytes) > 0

    def _beyond(self, limit_bytes: int) -> int:
        """Return the growth of this process in bytes if it is above the limit, else 0."""
        if self._resident_bytes() - self._ready_bytes <= limit_bytes:
            return 0
        grown = self._alive_bytes() - self._ready_bytes
        return grown if grown > limit_bytes else 0

    def _alive_bytes(self) -> int:
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)  # return free pages to the system; only glibc has a call for this
        return self._resident_bytes()

    def _resident_bytes(self) -> int:
        return int(self._process.memory_info().rss)


def main() -> None:
    """Run a worker, as a child process."""
    parent = Parent(Command)
    with lasting_streams():
        Worker(parent).run()

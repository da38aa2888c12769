"""A worker process, which reads commands from stdin and writes messages to stdout."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from typing import BinaryIO

import numpy as np

from tokenmill.core.records import TokenBatch
from tokenmill.core.streams import lasting_streams
from tokenmill.encode.exactness import Exam
from tokenmill.run.local import messages
from tokenmill.run.local.messages import (
    Calibrate,
    Calibrated,
    Encoded,
    Exceeded,
    Progress,
    Started,
)
from tokenmill.run.local.preloading import Preload, Preloaded, preload
from tokenmill.run.units import wire
from tokenmill.run.units.assignment import Assignment, Setup, Tally
from tokenmill.run.units.growth import GrownTooFar, Growth
from tokenmill.run.units.unit import FinishedUnit, UnitRunner


class Worker:
    """Runs units one after another. A second thread flushes finished units."""

    def __init__(self, commands: BinaryIO, out: BinaryIO) -> None:
        self._commands = commands
        self._out = out
        self._lock = threading.Lock()
        self._reported = self._report_seconds = 0.0
        self._tally = Tally()
        self._finished: queue.SimpleQueue[FinishedUnit | None] = queue.SimpleQueue()
        self._decode = wire.decoder(messages.Command).decode
        self._preloaded: Preloaded | None = None

    def run(self) -> None:
        """Handle commands until they end."""
        if not (setup := self._read_setup()):
            return  # this worker was never needed
        committer = threading.Thread(target=self._commit_all, daemon=True)
        committer.start()
        preloaded, self._preloaded = self._preloaded, None
        try:
            engine = preloaded.engine_for(setup) if preloaded else None
            runner = UnitRunner(setup, engine)
        except BaseException as error:
            self._send(messages.failure("", error, None))
            raise SystemExit(0) from None
        growth = Growth(setup.growth_bytes, setup.batch_bytes)
        self._report_seconds = setup.report_seconds
        loading = preloaded.seconds if preloaded and engine else 0.0
        self._send(Started(seconds=loading + runner.startup_seconds))
        for line in self._commands:
            command = self._decode(line)
            if isinstance(command, Calibrate):
                self._calibrate(runner, command)
            else:
                self._run_unit(runner, command, growth)
        self._finished.put(None)
        committer.join()

    def _read_setup(self) -> Setup | None:
        """Read commands until the setup arrives. Preloads an engine if asked to."""
        decode = wire.decoder(Preload | Setup).decode
        for line in self._commands:
            command: Preload | Setup = decode(line)
            if isinstance(command, Setup):
                return command
            self._preloaded = preload(command)
        return None

    def _calibrate(self, runner: UnitRunner, command: Calibrate) -> None:
        ids = np.array(command.ids, np.uint32)
        offsets = np.array(command.offsets, np.int64)
        try:
            runner.calibrate(Exam(command.texts, TokenBatch(ids, offsets)))
        except BaseException as error:
            self._send(messages.failure("", error, None))
        else:
            self._send(Calibrated())

    def _run_unit(self, runner: UnitRunner, command: Assignment, growth: Growth) -> None:
        def report(tally: Tally) -> None:
            self._tally = tally
            growth.check(tally.bytes)
            if command.careful:
                self._reported = 0.0  # report at once that the announced document is done
            self._report(tally)

        try:
            finished = runner.run(command, report, self._send)
        except GrownTooFar as error:
            self._send(
                Exceeded(
                    key=command.unit.key,
                    grown_bytes=error.grown_bytes,
                    source=self._tally.source,
                    position=self._tally.position,
                )
            )
            return
        except BaseException as error:
            self._send(messages.failure(command.unit.key, error, runner.current_source))
        else:
            self._finished.put(finished)
        self._send(Encoded(full=growth.is_full()))

    def _report(self, tally: Tally) -> None:
        now = time.monotonic()
        if now - self._reported >= self._report_seconds:
            self._reported = now
            self._send(Progress(tally=tally))

    def _commit_all(self) -> None:
        while (finished := self._finished.get()) is not None:
            try:
                outcome = finished.commit()
            except BaseException as error:
                self._send(messages.failure(finished.outcome.receipt.key, error, None))
                continue
            self._send(outcome)

    def _send(self, message: messages.Message) -> None:
        with self._lock:
            try:
                self._out.write(wire.encode(message))
                self._out.flush()
            except BrokenPipeError:
                os._exit(1)  # the main process is gone: exit without cleaning up


def main() -> None:
    """Run a worker on this process's standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # SIGINT must end the process, not only the unit
    commands = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())  # libraries must not read commands
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries must not print into messages
    os.register_at_fork(after_in_child=lambda: _let_go(commands, out))
    with lasting_streams():
        Worker(commands, out).run()


def _let_go(*pipes: BinaryIO) -> None:
    """Close the pipes in a process that a tokenizer forks, so that they end with the worker."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for pipe in pipes:
        os.dup2(nothing, pipe.fileno(), inheritable=False)
    os.close(nothing)


if __name__ == "__main__":
    main()

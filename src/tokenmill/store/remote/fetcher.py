"""The fetcher's other end: requests are sent ahead, and waited for when they are needed.

No thread is started here, so a process may be forked at any time: a child that asks for something
gets a fetcher of its own. Loaders in several threads take turns.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Collection, Iterator

import msgspec

from tokenmill.cloud.admission import admission_environment
from tokenmill.errors import StorageError
from tokenmill.store.remote.messages import Answer, Request, Setup

STARTS = 3
"""Fetchers that are started for one wait, if they end unexpectedly."""
READ_BYTES = 1 << 16

_inherited: list[object] = []
"""Fetchers of the process that this one was forked from: nobody here may wait for them."""


class Fetcher:
    """Sends requests to a process that carries them out, and keeps its answers.

    Raises, in all methods:
        StorageError: the process cannot be started, or keeps ending.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._pid = 0
        self._number = 0
        self._lock = threading.RLock()
        self._forget()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other threads waiting, in this process, while several methods are called."""
        if self._pid != os.getpid():  # a thread of the other process may have held it
            self._lock = threading.RLock()
        with self._lock:
            self._of_this_process()
            yield

    def __reduce__(self) -> tuple[type[Fetcher], tuple[str]]:
        return type(self), (self._location,)

    def next_number(self) -> int:
        """A number for a request."""
        with self.alone():
            self._number += 1
            return self._number

    def send(self, requests: Collection[Request]) -> None:
        """Have requests carried out, in this order as far as there is one."""
        with self.alone():
            for request in requests:
                self._running[request.number] = request
            self._write(requests)
            self._drain(0)

    def wait(self, numbers: Collection[int]) -> list[Answer]:
        """The answers to requests that were sent, each given out once.

        Once one has failed, those that have not come are not waited for.
        """
        with self.alone():
            self._wait(numbers)
            return [self._answers.pop(number) for number in numbers if number in self._answers]

    def _wait(self, numbers: Collection[int]) -> None:
        starts = 0
        while self._is_worth_waiting(numbers):
            if not self._drain(None):
                starts += 1
                if starts >= STARTS:
                    self._forget()
                    raise StorageError(
                        "the process that reads from the store has ended",
                        where=self._location,
                        why=f"it was started {starts} times and ended each time before it answered",
                        hint="check its messages above and the free memory of this machine",
                    )
                self._restart()

    def look(self) -> None:
        """Take answers that have come, without waiting for any."""
        with self.alone():
            self._drain(0)

    def is_running(self, number: int) -> bool:
        """Whether a request is still being carried out, as far as this process knows."""
        return number in self._running

    def _is_worth_waiting(self, numbers: Collection[int]) -> bool:
        """Whether some requests are being carried out, and none has failed."""
        answers = (self._answers.get(number) for number in numbers)
        has_failed = any(each is not None and each.failure is not None for each in answers)
        return not has_failed and any(number in self._running for number in numbers)

    def _of_this_process(self) -> None:
        if self._pid != os.getpid():
            if self._pid:
                _inherited.append(self._popen)
                for pipe in (self._popen.stdin, self._popen.stdout):
                    assert pipe is not None
                    pipe.close()  # so that the fetcher sees when the other process ends
            self._forget()
            self._pid = os.getpid()
            self._start()

    def _forget(self) -> None:
        self._running: dict[int, Request] = {}
        self._answers: dict[int, Answer] = {}
        self._rest = b""

    def _restart(self) -> None:
        """Start another process, and send it what the last one left undone."""
        self._popen.kill()
        self._end()
        self._rest = b""
        self._start()
        self._write(list(self._running.values()))

    def _start(self) -> None:
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "tokenmill.store.remote.fetching"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={
                    **os.environ,
                    **admission_environment(),
                    "PYTHONPATH": os.pathsep.join(sys.path),
                },
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise StorageError(
                "cannot start the process that reads from the store", why=str(error)
            ) from error
        assert self._popen.stdout is not None
        os.set_blocking(self._popen.stdout.fileno(), False)
        self._end = weakref.finalize(self, _end, self._popen, os.getpid())
        self._send(msgspec.json.encode(Setup(location=self._location)) + b"\n")

    def _write(self, requests: Collection[Request]) -> None:
        encode = msgspec.json.encode
        for first in range(0, len(requests), 256):
            part = list(requests)[first : first + 256]
            self._send(b"".join(encode(request) + b"\n" for request in part))

    def _send(self, data: bytes) -> None:
        assert self._popen.stdin is not None
        view = memoryview(data)
        with contextlib.suppress(BrokenPipeError):  # its end is seen when it is waited for
            while view:
                view = view[os.write(self._popen.stdin.fileno(), view) :]

    def _drain(self, seconds: float | None) -> bool:
        """Take answers that have come; wait for one at most so long. False: the process is gone."""
        assert self._popen.stdout is not None
        descriptor = self._popen.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while poll.poll(None if seconds is None else 1000 * seconds):
            try:
                data = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                continue
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                answer = msgspec.json.decode(line, type=Answer)
                if answer.number < 0 and answer.failure is not None:
                    raise answer.failure.rebuild()
                if self._running.pop(answer.number, None) is not None:
                    self._answers[answer.number] = answer
            if lines:
                seconds = 0
        return True


def _end(popen: subprocess.Popen[bytes], pid: int) -> None:
    """Let a process end, if this one started it."""
    if os.getpid() != pid:
        _inherited.append(popen)
        return
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        popen.wait(1)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()

"""The client of the fetcher process: sends requests ahead, and waits when an answer is needed.

It starts no threads, so the process can fork at any time; a child that sends a request starts its
own fetcher. Loaders in several threads take turns.
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

from tokenmill.core.errors import StorageError
from tokenmill.store.cloud.admission import admission_environment
from tokenmill.store.remote.messages import Answer, Request, Setup

STARTS = 3
"""How often a fetcher that ends unexpectedly is started during one wait."""
READ_BYTES = 1 << 16

_inherited: list[object] = []
"""Fetchers of the parent of a forked process, which this process must not wait for."""


class Fetcher:
    """Sends requests to a fetcher process and keeps its answers.

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
        """Hold a lock while several methods are called, so that other threads wait."""
        if self._pid != os.getpid():  # a thread of the parent may have held it
            self._lock = threading.RLock()
        with self._lock:
            self._of_this_process()
            yield

    def __reduce__(self) -> tuple[type[Fetcher], tuple[str]]:
        return type(self), (self._location,)

    def next_number(self) -> int:
        """Return a new request number."""
        with self.alone():
            self._number += 1
            return self._number

    def send(self, requests: Collection[Request]) -> None:
        """Send requests; they are carried out in about this order."""
        with self.alone():
            for request in requests:
                self._running[request.number] = request
            self._write(requests)
            self._drain(0)

    def wait(self, numbers: Collection[int]) -> list[Answer]:
        """Wait for the answers to requests; each answer is returned once.

        After a failed answer, missing ones are no longer waited for.
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
        """Read available answers without waiting."""
        with self.alone():
            self._drain(0)

    def is_running(self, number: int) -> bool:
        """Return whether a request is running, as far as this process knows."""
        return number in self._running

    def _is_worth_waiting(self, numbers: Collection[int]) -> bool:
        """Return whether some of the requests are running and none has failed."""
        answers = (self._answers.get(number) for number in numbers)
        has_failed = any(each is not None and each.failure is not None for each in answers)
        return not has_failed and any(number in self._running for number in numbers)

    def _of_this_process(self) -> None:
        if self._pid != os.getpid():
            if self._pid:
                _inherited.append(self._popen)
                for pipe in (self._popen.stdin, self._popen.stdout):
                    assert pipe is not None
                    pipe.close()  # so that the fetcher notices when the other process ends
            self._forget()
            self._pid = os.getpid()
            self._start()

    def _forget(self) -> None:
        self._running: dict[int, Request] = {}
        self._answers: dict[int, Answer] = {}
        self._rest = b""

    def _restart(self) -> None:
        """Start a new process and send it the unfinished requests."""
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
        with contextlib.suppress(BrokenPipeError):  # `wait` notices that it has ended
            while view:
                view = view[os.write(self._popen.stdin.fileno(), view) :]

    def _drain(self, seconds: float | None) -> bool:
        """Read answers, waiting up to `seconds`; return False if the process has ended."""
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
    """End the fetcher, if this process started it."""
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

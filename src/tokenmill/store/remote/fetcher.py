"""The client of the fetcher process: sends requests ahead, and waits when an answer is needed.

It starts no threads, so the process can fork at any time; a child that sends a request starts its
own fetcher. Loaders in several threads take turns.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from tokenmill.core.child import Child, ChildEnded, Program
from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import StorageError
from tokenmill.store.cloud.failures import admission_environment

STARTS = 3
"""How often a fetcher that ends unexpectedly is started during one wait."""
MAX_SENT = 256
"""Most requests in one message."""


class FetchBlocks(msgspec.Struct, frozen=True, kw_only=True, tag="blocks"):
    """Download a range of an object into a file, unless the file already has it."""

    key: str
    path: str
    start: int
    """The first byte, a multiple of 64 KiB."""
    num_bytes: int
    digests: list[int]
    """xxh3-64 of each block of 64 KiB."""


class FetchFile(msgspec.Struct, frozen=True, kw_only=True, tag="file"):
    """Download a whole object into a file."""

    key: str
    path: str
    num_bytes: int | None
    """Size of the object; None for small objects of unknown size."""
    digest: str
    """xxh3-128; "" if unknown, for files that contain their own digest."""
    is_compared: bool = False
    """Whether an existing file with this digest is reused; it need not survive a crash.

    Otherwise, the file is always downloaded, and only gets its name when it is complete.
    """


class ListFolder(msgspec.Struct, frozen=True, kw_only=True, tag="list"):
    """List the objects below a folder."""

    prefix: str


Request = FetchBlocks | FetchFile | ListFolder


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a request."""

    number: int
    failure: ErrorRecord | None = None
    sizes: dict[str, int] = {}
    """Sizes of the listed objects, by name."""
    num_bytes: int = 0
    """Bytes that were fetched; 0 if they were there already."""


class Fetcher:
    """Sends requests to a fetcher process and keeps its answers.

    Raises, in all methods:
        StorageError: the process cannot be started, or keeps ending.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._pid = 0
        self.num_bytes = 0
        """Bytes that were fetched for this process, as far as it has read the answers."""
        self._number = 0
        self._lock = threading.RLock()
        self._forget()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold a lock while several methods are called, so that other threads wait."""
        if self._pid != os.getpid():  # a thread of the parent may have held it
            self._lock = threading.RLock()
        with self._lock:
            if self._pid != os.getpid():
                self._forget()
                self._pid, self.num_bytes = os.getpid(), 0
                self._start()
            yield

    def __reduce__(self) -> tuple[type[Fetcher], tuple[str]]:
        return type(self), (self._location,)

    def send(self, requests: Iterable[Request]) -> list[int]:
        """Send requests, which are carried out in about this order, and return their numbers."""
        with self.alone():
            added = {self._number + i: request for i, request in enumerate(requests)}
            self._number += len(added)
            self._running |= added
            self._write(added)
            self._drain(0)
            return list(added)

    def wait(self, numbers: Collection[int]) -> dict[int, Answer]:
        """Wait for the answers to requests; each answer is returned once, by its number.

        After a failed answer, missing ones are no longer waited for.
        """
        with self.alone():
            self._wait(numbers)
            there = [number for number in numbers if number in self._answers]
            return {number: self._answers.pop(number) for number in there}

    def carry_out(self, requests: Iterable[Request]) -> list[Answer]:
        """Send requests and wait for their answers; raise the first failure."""
        answers = list(self.wait(self.send(requests)).values())
        for answer in answers:
            if answer.failure is not None:
                raise answer.failure.rebuild()
        return answers

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

    def is_running(self, number: int) -> bool:
        """Return whether a request is running, as far as this process knows."""
        return number in self._running

    def announce(self, files: Iterable[FetchFile]) -> None:
        """Start to download files, unless this process has asked for them before."""
        with self.alone():
            new = [file for file in files if file.key not in self._asked]
            numbers = self.send(new) if new else []
            self._asked.update(zip((file.key for file in new), numbers, strict=True))

    def has(self, keys: Iterable[str]) -> bool:
        """Return whether all of these announced files have arrived."""
        with self.alone():
            self._drain(0)
            return not any(self._asked.get(key) in self._running for key in keys)

    def obtain(self, files: Collection[FetchFile]) -> None:
        """Wait until files are there; a file that was there and is missing comes again.

        Raises:
            VerificationError: a file is damaged.
            UserError: the store denied access.
            StorageError: the store or the file system fails.
        """
        with self.alone():
            for file in files:
                number = self._asked.get(file.key)
                is_done = number not in self._running and number not in self._answers
                if is_done and not Path(file.path).is_file():
                    self._asked.pop(file.key, None)
            self.announce(files)
            keys = {self._asked[file.key]: file.key for file in files}
            for number, answer in self.wait(keys).items():
                if answer.failure is not None:
                    del self._asked[keys[number]]
                    raise answer.failure.rebuild()

    def _is_worth_waiting(self, numbers: Collection[int]) -> bool:
        """Return whether some of the requests are running and none has failed."""
        answers = (self._answers.get(number) for number in numbers)
        has_failed = any(each is not None and each.failure is not None for each in answers)
        return not has_failed and any(number in self._running for number in numbers)

    def _forget(self) -> None:
        self._running: dict[int, Request] = {}
        self._answers: dict[int, Answer] = {}
        self._asked: dict[str, int] = {}
        """The announced files of this process, with the numbers of their requests."""

    def _restart(self) -> None:
        """Start a new process and send it the unfinished requests."""
        self._child.end()
        self._start()
        self._write(self._running)

    def _start(self) -> None:
        program = Program(
            module="tokenmill.store.remote.fetching",
            task="reads from the store",
            replies=Answer,
            environment=admission_environment(),
            end_seconds=1.0,
        )
        try:
            self._child = Child(program)
        except ChildEnded as error:
            raise StorageError(
                "cannot start the process that reads from the store", why=error.why
            ) from error
        self._child.send(self._location)

    def _write(self, requests: Mapping[int, Request]) -> None:
        numbered = [*requests.items()]
        for first in range(0, len(numbered), MAX_SENT):
            self._child.send(numbered[first : first + MAX_SENT])

    def _drain(self, seconds: float | None) -> bool:
        """Read answers, waiting up to `seconds`; return False if the process has ended."""
        while self._child.wait(seconds):
            try:
                answer: Answer = self._child.receive()[0]
            except ChildEnded:
                return False
            self.num_bytes += answer.num_bytes
            if self._running.pop(answer.number, None) is not None:
                self._answers[answer.number] = answer
            seconds = 0
        return True

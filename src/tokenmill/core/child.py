"""Child processes, for code that may crash, hang, or take too much memory.

    this process                                      the child
    child = Child(Program(module="a.b", ...))         imports a.b and calls a.b.main():
                                                      parent = Parent(Request)
    child.send(Request(...), b"data")                 request, data = parent.receive()
    reply, data = child.receive(limits)               parent.send(Reply(...), b"data")

A message is a value as JSON and some bytes, after the lengths of both. A child that dies or exceeds
a limit becomes a `ChildEnded`. A child ends with the process that started it, also if that is
killed. No threads are started, so a process with children can fork; for the fork, they have ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from tokenmill.core.errors import EngineError

LOOK_SECONDS = 0.02
"""How often the time and the memory of a child with limits are checked."""
EXIT_SECONDS = 10.0
"""How long a child that has closed its pipes may take to exit."""
_STDERR = {"shared": None, "discarded": subprocess.DEVNULL, "piped": subprocess.PIPE}
_SIZES = struct.Struct("<QQ")


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a child runs, and how."""

    module: str
    """The module with its `main`."""
    task: str
    """What it does, for messages: "parses an input"."""
    replies: Any
    """The type of its messages."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it has in addition to those of this process."""
    without: tuple[str, ...] = ()
    """Modules that it cannot import, because it starts faster without."""
    stderr: Literal["shared", "discarded", "piped"] = "shared"
    """Where its standard error goes. `Child.lines` reads a piped one."""
    pipe_bytes: int = 0
    """Size of its pipes; 0 for the system's default."""
    end_seconds: float = 0.0
    """How long it may take to clean up at its end before it is killed."""


class Limits(NamedTuple):
    """What a child may use until its next message."""

    cpu_seconds: float
    memory_bytes: int


class ChildEnded(EngineError):
    """A child has died, was killed, exceeded a limit, or could not be started."""

    def __init__(
        self, task: str, why: str, *, code: int = 0, limit: Literal["", "time", "memory"] = ""
    ) -> None:
        super().__init__(f"the process that {task} has ended", why=why)
        self.limit = limit
        """The limit that it exceeded, if any."""
        self.signal = signal.Signals(-code) if code < 0 else None
        """The signal that ended it, if any."""


class Child:
    """A child process, which works on messages."""

    def __init__(self, program: Program) -> None:
        """Start it.

        Raises:
            ChildEnded: the system refused to start a process.
        """
        self._task = program.task
        hidden = "".join(f"sys.modules[{name!r}] = None; " for name in program.without)
        # What is imported stays, so it is not looked through for garbage.
        imports = f"gc.disable(); {hidden}from {program.module} import main; gc.freeze()"
        start = f"import gc, sys; {imports}; gc.enable(); main()"
        try:
            self._popen = subprocess.Popen(
                # -P: do not import modules from the current folder.
                [sys.executable, "-P", "-c", start],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=_STDERR[program.stderr],
                env={
                    **os.environ,
                    **program.environment,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                },
                start_new_session=True,  # Ctrl-C goes to this process, which ends the child
                bufsize=0,
            )
        except OSError as error:
            raise ChildEnded(self._task, f"it cannot be started: {error}") from error
        self._stdin = cast(FileIO, self._popen.stdin)
        self._stdout = cast(FileIO, self._popen.stdout)
        if program.pipe_bytes and hasattr(fcntl, "F_SETPIPE_SZ"):
            for pipe in (self._stdin, self._stdout):
                with contextlib.suppress(OSError):  # Linux limits the pipes of a user
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, program.pipe_bytes)
        self._channel = _Channel(self._stdout, self._stdin, program.replies)
        self._end = weakref.finalize(self, _end, self._popen, program.end_seconds)
        _children[self.pid] = self

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        """Whether the child has ended, or belongs to the parent of this forked process."""
        return self._popen.poll() is not None

    def send(self, message: Any, payload: bytes | memoryview = b"") -> None:
        """Send a message; if the child has ended, `receive` reports it."""
        with contextlib.suppress(BrokenPipeError):
            self._channel.send(message, payload)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until there is a message, or the child has ended; return False after `seconds`."""
        if self._stdout.closed:
            return True
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        return bool(poll.poll(None if seconds is None else 1000 * seconds))

    def receive(self, limits: Limits | None = None) -> tuple[Any, bytearray]:
        """Wait for the next message.

        Raises:
            ChildEnded: the child has ended, or exceeded a limit and was killed.
        """
        if limits:
            self._watch(limits)
        try:
            value, payload = self._channel.read()
        except EOFError:
            raise self.death() from None
        return self._channel.decode(value), payload

    def messages(self) -> Iterator[bytearray]:
        """Yield messages as JSON, for a thread that listens, until the child has ended."""
        with contextlib.suppress(EOFError):
            while True:
                yield self._channel.read()[0]

    def lines(self) -> Iterator[str]:
        """Yield the lines of a piped standard error until the child closes it."""
        for line in cast(FileIO, self._popen.stderr):
            yield line.decode("utf-8", "replace").rstrip()

    def end(self) -> None:
        """End the child."""
        self._end()

    def _watch(self, limits: Limits) -> None:
        """Wait for a message, and kill the child if it exceeds a limit."""
        if self.wait(LOOK_SECONDS):
            return
        import psutil

        with contextlib.suppress(psutil.Error):  # it ends just now
            process = psutil.Process(self.pid)
            allowed = sum(process.cpu_times()[:2]) + limits.cpu_seconds
            while not self.wait(LOOK_SECONDS):
                if process.memory_info().rss > limits.memory_bytes:
                    self.end()
                    why = f"it took more than {limits.memory_bytes:,} bytes of memory"
                    raise ChildEnded(self._task, why, limit="memory")
                if sum(process.cpu_times()[:2]) > allowed:
                    self.end()
                    why = f"it took more than {limits.cpu_seconds:g} s of CPU time"
                    raise ChildEnded(self._task, why, limit="time")

    def kill(self) -> None:
        """Kill the child and the processes that it has started; `receive` reports its end."""
        _kill(self._popen)

    def death(self) -> ChildEnded:
        """Return how the child has ended, and end the processes that it has started."""
        _kill(self._popen)  # a child that has ended keeps its code
        try:
            code = self._popen.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        self.end()
        ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        hint = ", which usually means that memory ran out" if code == -signal.SIGKILL else ""
        return ChildEnded(self._task, f"it ended with {ending}{hint}", code=code)

    def _disown(self) -> None:
        """In a fork of this process: close the pipes, so that the child can end."""
        self._end.detach()
        self._popen.returncode = 0
        _close(self._popen)


_children: weakref.WeakValueDictionary[int, Child] = weakref.WeakValueDictionary()


def child_pids() -> set[int]:
    """Return the ids of this process's children."""
    children = [reference() for reference in _children.valuerefs()]
    return {child.pid for child in children if child and not child.has_ended}


def _end(popen: subprocess.Popen[bytes], seconds: float) -> None:
    if seconds:
        cast(FileIO, popen.stdin).close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(seconds)
    _kill(popen)
    popen.wait()
    _close(popen)


def _kill(popen: subprocess.Popen[bytes]) -> None:
    if popen.returncode is None:  # else another process may have its number
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS, if it is dead
            os.killpg(popen.pid, signal.SIGKILL)


def _close(popen: subprocess.Popen[bytes]) -> None:
    for pipe in (popen.stdin, popen.stdout, popen.stderr):
        if pipe:
            pipe.close()


def _after_fork() -> None:
    for reference in _children.valuerefs():
        if child := reference():
            child._disown()
    _children.clear()


os.register_at_fork(after_in_child=_after_fork)


class Parent:
    """The process that has started this one, for the `main` of a child."""

    def __init__(self, messages: Any) -> None:
        """Receive messages of a type; this process ends when there can be no more."""
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # the parent handles them and ends this process
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected
        incoming, outgoing = FileIO(os.dup(0)), FileIO(os.dup(1), "w")
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)  # output of libraries must not mix with messages
        self._channel = _Channel(incoming, outgoing, messages)
        self._lock = threading.Lock()
        self._received: queue.SimpleQueue[tuple[bytearray, bytearray]] = queue.SimpleQueue()
        self.at_end: Callable[[], object] = lambda: None
        """What to do before this process ends."""
        os.register_at_fork(after_in_child=lambda: _let_go(incoming, outgoing))
        threading.Thread(target=self._listen, daemon=True).start()

    def receive(self) -> tuple[Any, bytearray]:
        """Wait for the next message."""
        value, payload = self._received.get()
        return self._channel.decode(value), payload

    def send(self, message: Any, payload: bytes | memoryview = b"") -> None:
        """Send a message; threads may send at the same time."""
        try:
            with self._lock:
                self._channel.send(message, payload)
        except BrokenPipeError:
            os._exit(1)  # no process waits for it

    def _listen(self) -> None:
        while True:
            try:
                self._received.put(self._channel.read())
            except EOFError:
                self.at_end()
                os._exit(0)


def _let_go(*pipes: FileIO) -> None:
    """Close the pipes in a fork of a child, so that they end with the child."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for pipe in pipes:
        os.dup2(nothing, pipe.fileno(), inheritable=False)
    os.close(nothing)


class _Channel:
    """Sends and receives messages: two lengths, a value as JSON, and its bytes."""

    def __init__(self, incoming: FileIO, outgoing: FileIO, kind: Any) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self.decode = msgspec.json.Decoder(kind, dec_hook=_decode_path).decode

    def send(self, message: Any, payload: bytes | memoryview) -> None:
        """Send a message; raises a BrokenPipeError if the other process has ended."""
        value = msgspec.json.encode(message, enc_hook=_encode_path)
        self._write(_SIZES.pack(len(value), len(payload)) + value)
        self._write(payload)

    def read(self) -> tuple[bytearray, bytearray]:
        """Read the next message; raises an EOFError if the other process has ended."""
        value_bytes, payload_bytes = _SIZES.unpack(self._read(_SIZES.size))
        return self._read(value_bytes), self._read(payload_bytes)

    def _write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        if self._outgoing.closed:
            raise BrokenPipeError
        while rest:
            rest = rest[self._outgoing.write(rest) :]

    def _read(self, num_bytes: int) -> bytearray:
        data = bytearray(num_bytes)
        rest = memoryview(data)
        while rest:
            if self._incoming.closed or not (count := self._incoming.readinto(rest)):
                raise EOFError
            rest = rest[count:]
        return data


def _encode_path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"no JSON for {type(value)}")


def _decode_path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(f"no {kind} from JSON")

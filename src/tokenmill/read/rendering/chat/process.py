"""The process that renders conversations, with limits on its time and its memory.

A chat template is an untrusted program. The sandbox isolates it, but a few characters can loop
forever or fill the memory. So it runs in a process with limits on its memory and on the CPU time
for one conversation. A template that exceeds a limit stops the build: if the record were rejected
instead, the dataset would depend on the speed of the machine.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from io import FileIO
from typing import IO, Any, NoReturn, cast

import msgspec

from tokenmill.core.errors import DataError, InternalError, TokenmillError, UserError
from tokenmill.core.installed import install_command
from tokenmill.read.rendering.chat.conversations import Conversations
from tokenmill.read.rendering.renderer import RenderedText, Renderer, UnfitRecordError

MAX_SECONDS = 20.0
"""CPU time for one conversation; a usual one takes less than a thousandth of it."""
PROBE_SECONDS = 2.0
"""CPU time to compile a template and try it on a conversation of two words."""
MAX_MEMORY = 2 << 30
MAX_DETAIL = 1000
"""Longest detail of a rejection, in characters."""
PROGRAM = """
import sys
sys.modules["numpy"] = None  # not needed here: saves 30 MB and most of the start
from tokenmill.read.rendering.chat.process import main
main()
"""
HINT = "check the template and the record; no text of this conversation was used"
_SIZE = struct.Struct("<Q")


class Text(msgspec.Struct, tag="text"):
    """From the process: a text and its ranges without loss."""

    text: str
    no_loss: list[tuple[int, int]]
    special_strings: int


class Unfit(msgspec.Struct, tag="unfit"):
    """From the process: the record is rejected."""

    reason: str
    detail: str


class Failed(msgspec.Struct, tag="failed"):
    """From the process: a limit was exceeded, or the template cannot be used."""

    what: str
    why: str
    hint: str
    is_data: bool
    """Whether the record is involved, not only the template."""


class Ready(msgspec.Struct, tag="ready"):
    """From the process: the template is compiled."""


Reply = Text | Unfit | Failed | Ready


def renderer_of(description: Conversations) -> Renderer:
    """Return a renderer; renderers with equal descriptions share a process, started on demand.

    Raises:
        UserError: Jinja is missing, or the template cannot be used.
    """
    return _renderer(os.getpid(), msgspec.json.encode(description))


@functools.lru_cache(maxsize=2)
def _renderer(_pid: int, description: bytes) -> Renderer:
    return _ProcessRenderer(description)


class _ProcessRenderer:
    """Sends records to the process, one at a time."""

    def __init__(self, description: bytes) -> None:
        self._description = description
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        with self._lock:
            self._start()

    def render(self, record: Mapping[str, Any]) -> Sequence[RenderedText]:
        """Render the text of a record.

        Raises:
            UnfitRecordError: the record is rejected.
            DataError: the template exceeded a limit.
        """
        try:
            request = msgspec.json.encode(record)
        except (OverflowError, TypeError, ValueError, RecursionError) as error:
            raise UnfitRecordError("not-json", str(error)) from error
        with self._lock:
            if self._process is None:
                self._start()
            reply = self._ask(request, f"record {request[:80].decode(errors='replace')}")
        match reply:
            case Text(text=text, no_loss=no_loss, special_strings=special_strings):
                return [RenderedText(text, no_loss, special_strings)]
            case Unfit(reason=reason, detail=detail):
                raise UnfitRecordError(reason, detail)
        raise InternalError("the chat template process gave an invalid answer")

    def _start(self) -> None:
        if importlib.util.find_spec("jinja2") is None:
            hint = install_command("chat")
            raise UserError("cannot render chat templates", why="Jinja is not installed", hint=hint)
        self._process = subprocess.Popen(
            # -P: import no modules from the current folder.
            [sys.executable, "-P", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONHASHSEED": "0",  # keeps the order of sets in templates stable
            },
            start_new_session=True,  # Ctrl-C goes to this process; the other ends with its stdin
            bufsize=0,
        )
        self._end = weakref.finalize(self, _end, self._process, os.getpid())
        self._is_ready = False
        self._ask(self._description, "the template")
        self._is_ready = True

    def _ask(self, request: bytes, where: str) -> Text | Unfit | Ready:
        assert self._process is not None
        stdin = cast(FileIO, self._process.stdin)
        try:
            _send(stdin, request)
            answer = _receive(cast(FileIO, self._process.stdout))
            reply: Reply = msgspec.json.decode(answer, type=Reply)
        except (BrokenPipeError, EOFError):
            self._raise_death(where)
        except BaseException:  # else the next record would get this record's answer
            self._stop()
            raise
        if isinstance(reply, Failed):
            self._stop()
            kind = DataError if reply.is_data else UserError
            raise kind(reply.what, where=where, why=reply.why, hint=reply.hint)
        return reply

    def _raise_death(self, where: str) -> NoReturn:
        assert self._process is not None
        code = self._process.wait()
        self._stop()
        if code == -signal.SIGPROF:
            seconds = MAX_SECONDS if self._is_ready else PROBE_SECONDS
            why = f"it took more than {seconds:g} s of CPU time for one conversation"
        else:
            why = f"the process that renders it ended with code {code}"
        raise DataError("the chat template did not finish", where=where, why=why, hint=HINT)

    def _stop(self) -> None:
        self._process = None
        self._end()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # in a fork, the process belongs to the parent
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            cast(IO[bytes], pipe).close()


def main() -> None:
    """Render records from stdin until it ends."""
    _limit_memory()
    commands, answers = FileIO(0, closefd=False), FileIO(1, "w", closefd=False)
    from tokenmill.read.rendering.chat.rendering import ConversationRenderer

    renderer: ConversationRenderer | None = None
    while True:
        try:
            request = _receive(commands)
        except EOFError:
            return
        seconds = MAX_SECONDS if renderer else PROBE_SECONDS
        signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends a process
        reply: Reply
        try:
            if renderer is None:
                description = msgspec.json.decode(request, type=Conversations)
                renderer, reply = ConversationRenderer(description), Ready()
            else:
                found = renderer.render(msgspec.json.decode(request))
                found.text.encode()  # a template can write half of a surrogate pair
                reply = Text(found.text, found.no_loss or [], found.special_strings or 0)
        except UnfitRecordError as error:
            reply = Unfit(error.reason, _as_detail(error.detail))
        except UnicodeEncodeError as error:
            reply = Unfit("lone-surrogate", str(error))
        except TokenmillError as error:
            is_data = isinstance(error, DataError)
            reply = Failed(error.what, error.why, error.hint, is_data=is_data)
        except BaseException as error:
            reply = _failure(error)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(answers, msgspec.json.encode(reply))


def _failure(error: BaseException) -> Failed:
    from tokenmill.read.rendering.chat.template import LimitError

    what = "the chat template exceeds a limit"
    if isinstance(error, LimitError):
        return Failed(what, str(error), HINT, is_data=True)
    if isinstance(error, MemoryError):
        why = f"it needs more than {MAX_MEMORY >> 20:,} MiB of memory"
        return Failed(what, why, HINT, is_data=True)
    why = _as_detail(f"{type(error).__name__}: {error}")
    return Failed("cannot render the chat template", why, "", is_data=False)


def _as_detail(text: str) -> str:
    """Shorten a text from a template, and escape halves of surrogate pairs."""
    return text[:MAX_DETAIL].encode(errors="backslashreplace").decode()


def _limit_memory() -> None:
    import resource

    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


def _send(stream: FileIO, payload: bytes) -> None:
    rest = memoryview(_SIZE.pack(len(payload)) + payload)
    while rest:
        rest = rest[stream.write(rest) :]


def _receive(stream: FileIO) -> bytes:
    (size,) = _SIZE.unpack(_exactly(stream, _SIZE.size))
    return _exactly(stream, size)


def _exactly(stream: FileIO, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = stream.read(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)

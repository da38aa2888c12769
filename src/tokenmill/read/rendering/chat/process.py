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
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tokenmill.core.child import Child, ChildEnded, Limits, Parent, Program
from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import DataError, InternalError, TokenmillError, UserError
from tokenmill.core.installed import install_command
from tokenmill.read.rendering.chat.conversations import Conversations
from tokenmill.read.rendering.renderer import RenderedText, Renderer
from tokenmill.read.values import UnfitRecordError

MAX_SECONDS = 20.0
"""CPU time for one conversation; a usual one takes less than a thousandth of it."""
PROBE_SECONDS = 2.0
"""CPU time to compile a template and try it on a conversation of two words."""
MAX_MEMORY = 2 << 30
MAX_DETAIL = 1000
"""Longest detail of a rejection, in characters."""
HINT = "check the template and the record; no text of this conversation was used"
TOO_MUCH_MEMORY = f"it needs more than {MAX_MEMORY >> 20:,} MiB of memory"


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

    error: ErrorRecord


class Ready(msgspec.Struct, tag="ready"):
    """From the process: it has started, or the template is compiled."""


Reply = Text | Unfit | Failed | Ready
PROGRAM = Program(
    module=__name__,
    task="renders a chat template",
    replies=Reply,
    environment={"PYTHONHASHSEED": "0"},  # keeps the order of sets in templates stable
    without=("numpy",),  # saves 30 MB and most of the start
)


def renderer_of(description: Conversations) -> Renderer:
    """Return a renderer; renderers with equal descriptions share a process.

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
        self._description = msgspec.Raw(description)
        self._lock = threading.Lock()
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
            if self._child.has_ended:
                self._start()
            where = f"record {request[:80].decode(errors='replace')}"
            reply = self._ask(msgspec.Raw(request), where, MAX_SECONDS)
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
        self._child = Child(PROGRAM)
        self._child.receive()
        self._ask(self._description, "the template", PROBE_SECONDS)

    def _ask(self, request: msgspec.Raw, where: str, seconds: float) -> Reply:
        try:
            self._child.send(request)
            reply: Reply = self._child.receive(Limits(seconds, MAX_MEMORY))[0]
            if isinstance(reply, Failed):
                raise msgspec.structs.replace(reply.error, where=where).rebuild()
        except ChildEnded as error:
            why = f"{error.why} for one conversation" if error.limit == "time" else error.why
            why = TOO_MUCH_MEMORY if error.limit == "memory" else why
            what = "the chat template did not finish"
            raise DataError(what, where=where, why=why, hint=HINT) from error
        except BaseException:  # else the next record would get this record's answer
            self._child.end()
            raise
        return reply


def main() -> None:
    """Compile the template of the first message, and render the records of the others."""
    import resource

    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    from tokenmill.read.rendering.chat.rendering import ConversationRenderer

    parent = Parent(Any)
    parent.send(Ready())
    renderer: ConversationRenderer | None = None
    while True:
        reply: Reply
        try:
            request, _ = parent.receive()
            if renderer is None:
                renderer = ConversationRenderer(msgspec.convert(request, Conversations))
                reply = Ready()
            else:
                found = renderer.render(request)
                found.text.encode()  # a template can write half of a surrogate pair
                reply = Text(found.text, found.no_loss or [], found.special_strings or 0)
        except UnfitRecordError as error:
            reply = Unfit(error.reason, _as_detail(error.detail))
        except UnicodeEncodeError as error:
            reply = Unfit("lone-surrogate", str(error))
        except BaseException as error:
            reply = Failed(ErrorRecord.of(_failure(error)))
        parent.send(reply)


def _failure(error: BaseException) -> TokenmillError:
    from tokenmill.read.rendering.chat.template import LimitError

    if isinstance(error, TokenmillError):
        return error
    if isinstance(error, LimitError | MemoryError):
        why = str(error) if isinstance(error, LimitError) else TOO_MUCH_MEMORY
        return DataError("the chat template exceeds a limit", why=why, hint=HINT)
    why = _as_detail(f"{type(error).__name__}: {error}")
    return UserError("cannot render the chat template", why=why)


def _as_detail(text: str) -> str:
    """Shorten a text from a template, and escape halves of surrogate pairs."""
    return text[:MAX_DETAIL].encode(errors="backslashreplace").decode()

"""Records of conversations, and the renderer that runs their chat template in a child process.

A chat template is an untrusted program. Jinja's sandbox isolates it, but a few characters can loop
forever or fill the memory. So it runs in a process with limits on its memory and on the CPU time
for one conversation. A template that exceeds a limit stops the build: if the record were rejected
instead, the dataset would depend on the speed of the machine.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from tokenmill.core.child import Child, ChildEnded, Limits, Program
from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import DataError, InternalError, UserError
from tokenmill.core.installed import install_command
from tokenmill.read.rendering.chat.turns import FIELDS
from tokenmill.read.rendering.renderer import RenderedText, Renderer, Rendering
from tokenmill.read.values import UnfitRecordError

MAX_SECONDS = 20.0
"""CPU time for one conversation; a usual one takes less than a thousandth of it."""
PROBE_SECONDS = 2.0
"""CPU time to compile a template and try it on a conversation of two words."""
MAX_MEMORY = 2 << 30
HINT = "check the template and the record; no text of this conversation was used"
TOO_MUCH_MEMORY = f"it needs more than {MAX_MEMORY >> 20:,} MiB of memory"


Chat = Literal["messages", "prompt-completion"]
LOSS_ON = ("all", "last", "assistant", "user", "system", "developer", "tool", "function", "ipython")
"""Usual values of `loss_on`; other roles are accepted unless they look like a misspelling."""

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}
{{- message['content'] + '<|im_end|>\\n' }}
{%- endgeneration %}
{%- else %}
{{- message['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
CHATML_MARKERS = ("<|im_start|>", "<|im_end|>")
"""What begins and ends a turn: single tokens of tokenizers that are meant for ChatML."""
TEMPLATES = {"chatml": CHATML}
"""Built-in templates by name."""


class Conversations(Rendering, frozen=True, tag="chat", kw_only=True):
    """Records of conversations, rendered by a chat template."""

    chat: Chat
    """The kind of the records."""
    template: str
    """The chat template in Jinja, as in transformers."""
    tokens: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables of the template such as bos_token and eos_token."""
    loss_on: tuple[str, ...] = ("assistant",)
    """Roles whose messages have loss, or "last", or "all"."""
    date: str | None = None
    """The date that the template uses as today, as YYYY-MM-DD."""
    control_strings: tuple[str, ...] = ()
    """Strings of special tokens, which are encoded as control tokens wherever they appear."""
    special_tokens: Literal["text", "control", "error"] = "text"
    """What to do with a record that contains special tokens: reject it, accept it, or stop the
    build.
    """

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields to read from each record."""
        return FIELDS[self.chat]

    @property
    def optional(self) -> frozenset[str]:
        """All fields, because records have different fields."""
        return frozenset(self.fields)

    @property
    def has_no_loss(self) -> bool:
        """True, because every conversation has parts without loss."""
        return True

    def renderer(self) -> Renderer:
        """Return a renderer; those with equal options share a process.

        Raises:
            UserError: Jinja is missing, or the template cannot be used.
        """
        return _renderer(os.getpid(), msgspec.json.encode(self)).render


class Unfit(msgspec.Struct, tag="unfit"):
    """From the process: the record is rejected."""

    reason: str
    detail: str


class Failed(msgspec.Struct, tag="failed"):
    """From the process: a limit was exceeded, or the template cannot be used."""

    error: ErrorRecord


class Ready(msgspec.Struct, tag="ready"):
    """From the process: it has started, or the template is compiled."""


Reply = RenderedText | Unfit | Failed | Ready
PROGRAM = Program(
    module="tokenmill.read.rendering.chat.rendering",
    task="renders a chat template",
    replies=Reply,
    environment={"PYTHONHASHSEED": "0"},  # keeps the order of sets in templates stable
    without=("numpy",),  # saves 30 MB and most of the start
)


@functools.lru_cache(maxsize=2)
def _renderer(_pid: int, description: bytes) -> _ProcessRenderer:
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
        if isinstance(reply, RenderedText):
            return [reply]
        if isinstance(reply, Unfit):
            raise UnfitRecordError(reply.reason, reply.detail)
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

"""Rendering of conversations to texts with ranges without loss; runs in a separate process."""

from __future__ import annotations

import contextlib
import re
import resource
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import jinja2
import msgspec

from tokenmill.core.child import Parent
from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import DataError, TokenmillError, UserError
from tokenmill.read.rendering.chat.conversations import (
    HINT,
    MAX_MEMORY,
    TOO_MUCH_MEMORY,
    Conversations,
    Failed,
    Ready,
    Reply,
    Unfit,
)
from tokenmill.read.rendering.chat.markers import ControlStrings, TurnMarkers
from tokenmill.read.rendering.chat.template import ChatTemplate, LimitError
from tokenmill.read.rendering.chat.turns import (
    EVERYTHING,
    Conversation,
    Span,
    Turns,
    complement,
    conversation_of,
)
from tokenmill.read.rendering.renderer import RenderedText
from tokenmill.read.values import UnfitRecordError

MAX_DETAIL = 1000
"""Longest detail of a rejection, in characters."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")


class ConversationRenderer:
    """Renders records, one at a time."""

    def __init__(self, description: Conversations) -> None:
        """Compile the template and try it.

        Raises:
            UserError: the template cannot be compiled.
            LimitError: the template exceeds a limit for a short conversation.
        """
        self._description = description
        self._control = ControlStrings(description.control_strings)
        try:
            self._template = ChatTemplate(
                description.template, description.tokens, description.date
            )
        except jinja2.TemplateSyntaxError as error:
            why = f"line {error.lineno}: {error.message}"
            raise UserError("cannot read the chat template", why=why) from error
        self._markers = TurnMarkers(self._template, description.tokens, self._control)

    def render(self, record: Mapping[str, Any]) -> RenderedText:
        """Render the text of a record.

        Raises:
            UnfitRecordError: the record is rejected.
            DataError: the record contains a special token or a marker, which stops the build.
        """
        found = conversation_of(record, self._description.chat)
        try:
            special_strings = self._control_strings(found)
        except RecursionError as error:
            raise UnfitRecordError("too-deep", "its lists are nested too deeply") from error
        if isinstance(found, Conversation):
            text, spans = self._from_template(found)
        else:
            text, spans = self._joined(*found)
        if not any(start < stop for start, stop in spans):
            raise UnfitRecordError("nothing-to-learn", self._why_nothing(found))
        return RenderedText(text, complement(spans, len(text)), special_strings)

    def _why_nothing(self, found: Conversation | tuple[str, str]) -> str:
        why = "no token of the conversation has loss"
        if not isinstance(found, Conversation):
            return why
        roles = sorted({message["role"] for message in found.messages})
        loss_on = ", ".join(self._description.loss_on)
        return f"{why}: --loss-on is {loss_on}, but the roles are {', '.join(roles)}"

    def _joined(self, prompt: str, completion: str) -> tuple[str, list[Span]]:
        """Concatenate a prompt and its completion unchanged, as TRL does."""
        first = 0 if EVERYTHING in self._description.loss_on else len(prompt)
        return prompt + completion, [(first, len(prompt + completion))]

    def _from_template(self, conversation: Conversation) -> tuple[str, list[Span]]:
        description = self._description
        try:
            turns = Turns(self._template, conversation)
            _refuse_addresses(turns.text, conversation)
            return turns.text, turns.loss(description.loss_on, description.tokens.get("eos_token"))
        except (UnfitRecordError, MemoryError):
            raise
        except LimitError as error:
            raise UnfitRecordError("too-long", str(error)) from error
        except jinja2.TemplateError as error:
            raise UnfitRecordError("template-refuses", str(error)) from error
        except Exception as error:  # a template can raise any exception
            raise UnfitRecordError("template-fails", f"{type(error).__name__}: {error}") from error

    def _control_strings(self, found: Conversation | tuple[str, str]) -> int:
        """Return the number of special tokens in the strings of a conversation.

        Raises:
            UnfitRecordError: there is one, or a turn marker, and such records are rejected.
            DataError: there is one, or a turn marker, and it stops the build.
        """
        strings = [*_strings([*found])]
        if self._description.special_tokens == "control":
            return sum(len(self._control.found(text)) for text in strings)
        if isinstance(found, Conversation):  # a template can trim contents and join them
            contents = [*map(str.strip, _contents(found.messages))]
            strings += ["".join(contents)] if len(contents) > 1 else []
        finders = {"special token": self._control.found, "turn marker": self._markers.found}
        for kind, find in finders.items():
            if strange := [each for text in strings for each in find(text)]:
                self._refuse(kind, strange[0], _place(found, find))
        return 0

    def _refuse(self, kind: str, string: str, where: str) -> NoReturn:
        why = f"{string!r} in {where} would be read as a {kind}"
        hint = "use --special-tokens control to accept it"
        if self._description.special_tokens == "error":
            what = f"a conversation contains a {kind}"
            raise DataError(what, why=why, hint=f"{hint}, with --overwrite")
        raise UnfitRecordError(f"{kind.replace(' ', '-')}-in-content", f"{why}; {hint}")


def _refuse_addresses(text: str, conversation: Conversation) -> None:
    """Refuse memory addresses in the text, because they differ between runs."""
    found = set(_ADDRESS.findall(text)) if " at 0x" in text else set()
    if found and any(not any(each in own for own in _strings([*conversation])) for each in found):
        why = "it prints a memory address, from a function or a filter without `| list`"
        raise UnfitRecordError("template-fails", why)


def _strings(value: object) -> Iterator[str]:
    """Yield all strings of a conversation; texts in a list are joined, as templates do."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _strings(each)
    elif isinstance(value, list):
        yield "".join(map(_text_of, value))
        for each in value:
            if isinstance(each, dict) and _text_of(each):
                each = {key: own for key, own in each.items() if key != "text"}
            if not isinstance(each, str):
                yield from _strings(each)


def _text_of(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def _place(found: Conversation | tuple[str, str], find: Callable[[str], list[str]]) -> str:
    """Return where a string is found first."""
    messages = found.messages if isinstance(found, Conversation) else []
    places = (index for index, each in enumerate(messages) if any(map(find, _strings(each))))
    return "the record" if (index := next(places, None)) is None else f"message {index}"


def _contents(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the texts of messages, part by part."""
    for message in messages:
        content = message.get("content")
        yield from map(_text_of, content if isinstance(content, list) else [content])


def main() -> None:
    """Compile the template of the first message, and render the records of the others."""
    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
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
                reply = renderer.render(request)
                reply.text.encode()  # a template can write half of a surrogate pair
        except UnfitRecordError as error:
            reply = Unfit(error.reason, _as_detail(error.detail))
        except UnicodeEncodeError as error:
            reply = Unfit("lone-surrogate", str(error))
        except BaseException as error:
            reply = Failed(ErrorRecord.of(_failure(error)))
        parent.send(reply)


def _failure(error: BaseException) -> TokenmillError:
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

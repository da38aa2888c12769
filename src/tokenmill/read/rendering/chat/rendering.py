"""Rendering of conversations to texts with ranges without loss; runs in a separate process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jinja2

from tokenmill.errors import DataError, UserError
from tokenmill.read.rendering.chat.conversations import Conversations
from tokenmill.read.rendering.chat.records import conversation_of
from tokenmill.read.rendering.chat.template import ChatTemplate, LimitError
from tokenmill.read.rendering.chat.turns import (
    EVERYTHING,
    Conversation,
    Span,
    Turns,
    complement,
)
from tokenmill.read.rendering.renderer import RenderedText, UnfitRecordError

_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")
PROBE = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello"}]


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
            self._template.render(PROBE, None, {})
        except jinja2.TemplateSyntaxError as error:
            why = f"line {error.lineno}: {error.message}"
            raise UserError("cannot read the chat template", why=why) from error
        except (LimitError, MemoryError, RecursionError):
            raise
        except Exception:  # it may ask for more than the probe has; records say what is wrong
            return

    def render(self, record: Mapping[str, Any]) -> RenderedText:
        """Render the text of a record.

        Raises:
            UnfitRecordError: the record is rejected.
            DataError: the record contains a special token, which stops the build.
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
            UnfitRecordError: there is one, and such records are rejected.
            DataError: there is one, and it stops the build.
        """
        tokens = [token for text in _strings([*found]) for token in self._control.found(text)]
        special_tokens = self._description.special_tokens
        if not tokens or special_tokens == "control":
            return len(tokens)
        why = f"{tokens[0]!r} in a message would be read as a control token"
        hint = "use --special-tokens control to accept it"
        if special_tokens == "error":
            what = "a conversation contains a special token"
            raise DataError(what, why=why, hint=f"{hint}, with --overwrite")
        raise UnfitRecordError("special-token-in-content", f"{why}; {hint}")


class ControlStrings:
    """Finds special tokens in texts; checks their first characters first, as most have none."""

    def __init__(self, strings: tuple[str, ...]) -> None:
        strings = tuple(sorted(filter(None, strings), key=len, reverse=True))
        self._starts = {string[:2] for string in strings}
        self._pattern = re.compile("|".join(map(re.escape, strings)) or "(?!)")

    def found(self, text: str) -> list[str]:
        """Return the special tokens in a text."""
        if not any(start in text for start in self._starts):
            return []
        return self._pattern.findall(text)


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

"""Conversations in records, and the characters of a rendered one that have loss.

This runs in the template's process.

A template can mark the text of the assistant (`{% generation %}`); these ranges are used unchanged.
Without markers, a turn is found by rendering the conversation up to it:

    everything                     <user>Hi<end><assistant>Hello<end><user>Bye<end>
    messages[:1] and a prompt      <user>Hi<end><assistant>
    messages[:2]                   <user>Hi<end><assistant>Hello<end>
    so the turn of messages[1] is                         Hello<end>

This is exact if the longer text begins with the shorter ones. If it does not, the template rewrites
earlier messages (Qwen 3 drops the reasoning of earlier turns), and the record is rejected instead
of guessing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenmill.read.values import UnfitRecordError

if TYPE_CHECKING:
    from tokenmill.read.rendering.chat.template import ChatTemplate, Rendered

SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "observation": "tool",
    "tool": "tool",
}
"""Roles for the values of `from` in `conversations`."""
FIELDS = {
    "messages": (
        *("messages", "conversations", "prompt", "completion"),
        *("tools", "chat_template_kwargs"),
    ),
    "prompt-completion": ("prompt", "completion"),
}
"""The fields to read from each record, by the kind of records."""
RESERVED = {"messages", "tools", "documents", "add_generation_prompt"}


def conversation_of(record: Mapping[str, Any], kind: str) -> Conversation | tuple[str, str]:
    """Return the conversation of a record, or the strings of a prompt and its completion.

    Raises:
        UnfitRecordError: the record has neither.
    """
    if kind == "prompt-completion":
        prompt, completion = record.get("prompt"), record.get("completion")
        if isinstance(prompt, str) and isinstance(completion, str):
            return prompt, completion
        why = "'prompt' and 'completion' must be strings; for lists, use --chat messages"
        raise UnfitRecordError("not-a-pair-of-strings", why)
    num_prompt = None
    if record.get("messages") is not None:
        messages = _messages(record["messages"], "messages")
    elif record.get("conversations") is not None:
        messages = _messages(_from_sharegpt(record["conversations"]), "conversations")
    else:
        prompt = _messages(record.get("prompt"), "prompt")
        messages = [*prompt, *_messages(record.get("completion"), "completion")]
        num_prompt = len(prompt)
    return Conversation(messages, _tools(record), _options(record), num_prompt)


def _messages(value: object, name: str) -> list[dict[str, Any]]:
    if value is None:
        raise UnfitRecordError("missing-field", f"the record has neither messages nor {name!r}")
    if not isinstance(value, list) or not value:
        raise UnfitRecordError("not-a-conversation", f"{name!r} is not a list of messages")
    for index, message in enumerate(value):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            what = f"message {index} of {name!r} is not an object with a role"
            raise UnfitRecordError("not-a-conversation", what)
    return value


def _from_sharegpt(value: object) -> object:
    """Convert messages with `from` and `value` to messages with `role` and `content`."""
    if not isinstance(value, list):
        return value
    return [_from_sharegpt_message(message) for message in value]


def _from_sharegpt_message(message: object) -> object:
    if not isinstance(message, dict) or "from" not in message:
        return message
    if not isinstance(message["from"], str) or message["from"] not in SHAREGPT_ROLES:
        why = f"'from' must be one of {', '.join(SHAREGPT_ROLES)}, got {message['from']!r}"
        raise UnfitRecordError("unknown-role", why)
    rest = {key: value for key, value in message.items() if key not in ("from", "value")}
    return {"role": SHAREGPT_ROLES[message["from"]], "content": message.get("value"), **rest}


def _tools(record: Mapping[str, Any]) -> list[Any] | None:
    """Return the tools of a record, which can be a JSON string."""
    tools = record.get("tools")
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except (ValueError, RecursionError) as error:
            raise UnfitRecordError(
                "invalid-tools", f"'tools' is not valid JSON: {error}"
            ) from error
    if tools is None:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise UnfitRecordError("invalid-tools", "'tools' is not a list of objects")
    return tools


def _options(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template variables in `chat_template_kwargs`, as in TRL; nulls are omitted."""
    options = record.get("chat_template_kwargs")
    if options is None:
        return {}
    if not isinstance(options, dict) or options.keys() & RESERVED:
        what = "'chat_template_kwargs' is not an object of template variables"
        raise UnfitRecordError("invalid-template-variables", what)
    return {key: value for key, value in options.items() if value is not None}


Span = tuple[int, int]
ASSISTANT, LAST, EVERYTHING = "assistant", "last", "all"
REWRITES = "template-rewrites-history"
INSTEAD = "use --loss-on last, or --chat-template trl or one with {% generation %} markers"
MAX_WORK = 1 << 20
"""Most work for one conversation: 1 for each rendering of a message, and 1 for 2,048 characters.

Without markers, a conversation is rendered twice per turn. This limit is reached long before the
limit on time, which would stop the build.
"""


class Conversation(NamedTuple):
    """Messages, and other arguments of a template."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    """Template variables from the record."""
    num_prompt: int | None = None
    """Number of messages in the prompt of a completion; None if there is no completion."""


class Turns:
    """A rendered conversation and the positions of its messages."""

    def __init__(self, template: ChatTemplate, conversation: Conversation) -> None:
        """Render the conversation.

        Raises:
            jinja2.TemplateError: the template refuses the conversation.
            LimitError: the template exceeds a limit.
            UnfitRecordError: the conversation is too long.
        """
        self._conversation = conversation
        self._messages = conversation.messages
        self._template = template
        self._work = 0
        self._whole = self._rendered(len(self._messages))
        self.text = self._whole.text
        self._starts = {0: 0, len(self._messages): len(self.text)}

    def loss(self, loss_on: Sequence[str], eos: str | None) -> list[Span]:
        """Return the ranges with loss, in order.

        `loss_on` contains roles, "last" (the last turn of the assistant) or "all". Messages with
        weight 0 have no loss. In a completion, everything after the prompt has loss.

        Raises:
            UnfitRecordError: the ranges cannot be found exactly.
        """
        if EVERYTHING in loss_on:
            spans = [(0, len(self.text))]
        elif (num_prompt := self._conversation.num_prompt) is not None:
            spans = [(self._prompt_stop(num_prompt), len(self.text))]
        else:
            spans = list(self._spans_of(loss_on, eos))
        silent = [index for index, each in enumerate(self._messages) if _weight(each) == 0]
        if not silent:
            return spans
        holes = [(self._start(index), self._start(index + 1)) for index in silent]
        length = len(self.text)
        return complement([*complement(spans, length), *holes], length)

    def _spans_of(self, loss_on: Sequence[str], eos: str | None) -> Iterator[Span]:
        roles = [message["role"] for message in self._messages]
        chosen = [index for index, role in enumerate(roles) if role in loss_on]
        if LAST in loss_on:
            chosen = [index for index, role in enumerate(roles) if role == ASSISTANT][-1:]
        whole = ASSISTANT in loss_on and self._template.has_markers
        if whole:
            yield from self._whole.generated
        for index in chosen:
            if roles[index] != ASSISTANT:
                yield self._start(index), self._start(index + 1)
            elif self._template.has_markers and not whole:
                yield from _within(
                    self._whole.generated, self._start(index), self._start(index + 1)
                )
            elif not whole:
                yield self._turn(index, eos)

    def _turn(self, index: int, eos: str | None) -> Span:
        """Return the range of a turn of the assistant."""
        start, stop = self._prompt_stop(index), self._start(index + 1)
        if start > stop:
            why = f"the turn of message {index} ends before it starts; {INSTEAD}"
            raise UnfitRecordError(REWRITES, why)
        if eos and self.text.startswith(eos, stop):
            why = f"the template writes the end of turn of message {index} with the next message"
            raise UnfitRecordError("end-of-turn-outside", f"{why}; {INSTEAD}")
        return start, stop

    def _start(self, index: int) -> int:
        """Return the start of a message."""
        if index not in self._starts:
            self._starts[index] = self._length_of(index, prompt=False)
        return self._starts[index]

    def _prompt_stop(self, index: int) -> int:
        """Return the end of the generation prompt for a message."""
        return self._length_of(index, prompt=True)

    def _length_of(self, count: int, *, prompt: bool) -> int:
        found = self._rendered(count, prompt=prompt).text
        if not self.text.startswith(found):
            what = "prompt after" if prompt else "rendering of"
            why = f"the text does not begin with the {what} the first {count} messages; {INSTEAD}"
            raise UnfitRecordError(REWRITES, why)
        return len(found)

    def _rendered(self, count: int, *, prompt: bool = False) -> Rendered:
        _, tools, options, _ = self._conversation
        found = self._template.render(self._messages[:count], tools, options, prompt=prompt)
        self._work += count + len(found.text) // 2048
        if self._work > MAX_WORK:
            why = f"its {len(self._messages):,} messages take too long to render; {INSTEAD}"
            raise UnfitRecordError("too-long", why)
        return found


def _weight(message: dict[str, Any]) -> int:
    weight = message.get("weight")
    if weight is not None and weight not in (0, 1):
        why = f"the weight of a message must be 0 or 1, got {weight!r}"
        raise UnfitRecordError("weight-between", why)
    return 1 if weight is None else int(weight)


def _within(spans: Sequence[Span], start: int, stop: int) -> Iterator[Span]:
    return ((max(a, start), min(b, stop)) for a, b in spans if a < stop and b > start)


def complement(spans: Sequence[Span], length: int) -> list[Span]:
    """Return the ranges of `length` characters that are not in `spans`, in order."""
    rest: list[Span] = []
    done = 0
    for start, stop in sorted(spans):
        if done < start:
            rest.append((done, start))
        done = max(done, stop)
    return [*rest, (done, length)] if done < length else rest

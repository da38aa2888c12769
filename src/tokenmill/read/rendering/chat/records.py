"""Extraction of conversations from records; runs in the template's process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenmill.read.rendering.chat.turns import Conversation
from tokenmill.read.values import UnfitRecordError

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

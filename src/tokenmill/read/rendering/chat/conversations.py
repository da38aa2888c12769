"""Options for records of conversations: their kind, the chat template, and the loss."""

from __future__ import annotations

from typing import Literal

import msgspec

from tokenmill.read.rendering.chat.records import FIELDS
from tokenmill.read.rendering.renderer import Renderer

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
TEMPLATES = {"chatml": CHATML}
"""Built-in templates by name."""


class Conversations(msgspec.Struct, frozen=True, tag="chat", kw_only=True):
    """Records of conversations, rendered by a chat template."""

    chat: Chat
    """The kind of the records."""
    template: str
    """The chat template in Jinja, as in transformers."""
    tokens: dict[str, str] = {}
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
        """Return a renderer that runs the template in a separate process.

        Raises:
            UserError: the template cannot be used.
        """
        from tokenmill.read.rendering.chat.process import renderer_of

        return renderer_of(self)

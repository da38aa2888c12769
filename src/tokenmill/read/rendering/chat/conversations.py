"""What is asked of records of conversations: their kind, a chat template, and where loss is."""

from __future__ import annotations

from typing import Literal

import msgspec

from tokenmill.read.rendering.chat.records import FIELDS
from tokenmill.read.rendering.renderer import Renderer

Chat = Literal["messages", "prompt-completion"]
LOSS_ON = ("all", "last", "assistant", "user", "system", "developer", "tool", "function", "ipython")
"""What is usual for `loss_on`; other roles are accepted if they are not nearly one of these."""

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
"""Templates with a name of their own."""


class Conversations(msgspec.Struct, frozen=True, tag="chat", kw_only=True):
    """Records of conversations, rendered by a chat template."""

    chat: Chat
    """The kind of the records."""
    template: str
    """In Jinja, as transformers reads it."""
    tokens: dict[str, str] = {}
    """What the template may name: bos_token, eos_token and the like."""
    loss_on: tuple[str, ...] = ("assistant",)
    """Roles whose messages have loss, or "last", or "all"."""
    date: str | None = None
    """What the template takes for today, as YYYY-MM-DD."""
    control_strings: tuple[str, ...] = ()
    """Special tokens, which are control tokens in a text, whoever wrote them."""
    special_tokens: Literal["text", "control", "error"] = "text"
    """What happens to a record that has them in its strings: it is set aside, accepted, or ends the
    build.
    """

    @property
    def fields(self) -> tuple[str, ...]:
        """What is read of each record."""
        return FIELDS[self.chat]

    @property
    def optional(self) -> frozenset[str]:
        """All of them: records differ in what they have."""
        return frozenset(self.fields)

    @property
    def has_no_loss(self) -> bool:
        """Always: parts of every conversation carry no loss."""
        return True

    def renderer(self) -> Renderer:
        """What renders records, in a process of its own.

        Raises:
            UserError: the template cannot be used.
        """
        from tokenmill.read.rendering.chat.process import renderer_of

        return renderer_of(self)

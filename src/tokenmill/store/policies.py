"""The policies of a dataset: the options that decided what was written.

They enter `dataset_id` as JSON, byte for byte: an option that is younger than the first datasets
is absent at its default.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType


class ReadPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """What was read; see `run.recipe.options.ReadOptions` for each."""

    format: str = "auto"
    text_field: str = "text"
    text_template: str | UnsetType = UNSET
    transform: str | UnsetType = UNSET
    transform_sha256: str | UnsetType = UNSET
    """Of its source."""
    id_field: str | None = None
    keep: list[str] = []
    no_loss: str | None = None
    separator: str | None = None
    streaming: bool | UnsetType = UNSET
    validation: float = 0.0
    max_documents: int | None = None
    max_tokens: int | None = None


class EncodePolicies(msgspec.Struct, frozen=True, kw_only=True):
    """How it was encoded; see `run.recipe.options.EncodeOptions` for each."""

    special_tokens: Literal["text", "control", "error"]
    unknown: Literal["count", "error"] = "count"


class ChatPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """How conversations were rendered; see `read.rendering.chat.conversations.Conversations`."""

    chat: Literal["messages", "prompt-completion"]
    template: str
    tokens: dict[str, str]
    loss_on: list[str]
    date: str | None = None


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest holds under `policies`; keys that this version does not know are passed over.

    Older datasets lack some keys: these have their defaults.
    """

    read: ReadPolicies
    encode: EncodePolicies
    chat: ChatPolicies | UnsetType = UNSET

    @property
    def control_tokens(self) -> bool:
        """Whether special tokens inside texts are control tokens; a chat template writes them."""
        return self.encode.special_tokens == "control" or self.chat is not UNSET

    @property
    def has_template(self) -> bool:
        """Whether a chat template writes what documents begin with, and all that has loss."""
        return not isinstance(self.chat, UnsetType) and self.chat.chat == "messages"

    @property
    def has_no_loss(self) -> bool:
        """Whether the documents table says what carries no loss."""
        return self.read.no_loss is not None or self.chat is not UNSET

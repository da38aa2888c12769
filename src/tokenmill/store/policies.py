"""The policies of a dataset: the options that determined its content.

`dataset_id` includes their JSON byte for byte. So that ids of older datasets stay the same, an
option that was added later is absent if it has its default.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType


class ReadPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """Options for reading; see `run.recipe.options.ReadOptions`."""

    format: str | list[str] = "auto"
    text_field: str | list[str] = "text"
    text_template: str | UnsetType = UNSET
    transform: str | UnsetType = UNSET
    transform_sha256: str | UnsetType = UNSET
    """SHA-256 of the source code of the transform."""
    id_field: str | None = None
    keep: list[str] = []
    no_loss: str | None = None
    separator: str | None = None
    max_record: int | UnsetType = UNSET
    streaming: bool | UnsetType = UNSET
    validation: float = 0.0
    max_documents: int | None = None
    max_tokens: int | None = None


class EncodePolicies(msgspec.Struct, frozen=True, kw_only=True):
    """Options for encoding; see `run.recipe.options.EncodeOptions`."""

    special_tokens: Literal["text", "control", "error"]
    unknown: Literal["count", "error"] = "count"


class ChatPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """Options for conversations; see `read.rendering.chat.conversations.Conversations`."""

    chat: Literal["messages", "prompt-completion"]
    template: str
    tokens: dict[str, str]
    loss_on: list[str]
    date: str | None = None


class AdoptPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """Options for adopting; see `read.tokens.options.AdoptOptions`."""

    boundaries: Literal["auto", "index", "eos"]
    append_eos: bool
    """Whether an EOS was appended to documents without one."""


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The `policies` of a manifest; unknown keys are ignored.

    Keys that older datasets lack have their defaults.
    """

    read: ReadPolicies
    encode: EncodePolicies
    chat: ChatPolicies | UnsetType = UNSET
    adopt: AdoptPolicies | UnsetType = UNSET
    """Only if another tool encoded the documents."""

    @property
    def control_tokens(self) -> bool:
        """Whether special tokens in texts are encoded as control tokens, as chat templates need."""
        return self.encode.special_tokens == "control" or self.chat is not UNSET

    @property
    def has_template(self) -> bool:
        """Whether a chat template writes the start of each document and everything with loss."""
        return not isinstance(self.chat, UnsetType) and self.chat.chat == "messages"

    @property
    def has_no_loss(self) -> bool:
        """Whether the documents table lists tokens excluded from the loss."""
        return self.read.no_loss is not None or self.chat is not UNSET

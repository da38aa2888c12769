"""What encodes: one small Protocol, and the reference that every engine is held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tokenmill.errors import EngineError
from tokenmill.records import Int64Array, TokenBatch, UInt32Array

REPORT = (
    "take the engine `reference` (a build: --engine reference --overwrite), and report the text"
)
"""What to do when an engine fails or differs."""


class TextError(EngineError):
    """A reference that is the user's own code failed on a text, or answered what are no ids."""

    text: str = ""


class Engine(Protocol):
    """Encodes batches of documents; special tokens of the post-processor are never added."""

    name: str
    version: str

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of every text, in order."""


class Reference(Engine, Protocol):
    """The library that owns the tokenizer's file: it defines what the right ids are."""

    largest_id: int
    """The largest id that exists, added tokens included."""
    special_tokens: dict[str, int]
    """Control tokens by content. Inside text they are matched only in `control` mode."""
    unk_id: int | None
    prefix: tuple[int, ...]
    """Ids that the tokenizer's own post-processor puts before a document."""
    suffix: tuple[int, ...]
    may_refuse: bool = False
    """Whether `encode` raises a TextError for some texts."""
    can_decode: bool = True
    own_end: int | None = None
    """The end-of-document token, if the user's own code puts it after every text. `encode` leaves
    it out, so that documents do not get two."""

    def token_id(self, token: str) -> int | None:
        """The id of a token's content, if it is in the vocabulary."""

    def encode_with_offsets(self, text: str) -> tuple[UInt32Array, Int64Array, Int64Array]:
        """Ids of one text, and the first and one past the last character of each token."""

    def twin(self) -> Engine | None:
        """A copy that encodes beside this one; None if it can be loaded from the file again."""
        return None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids, special tokens shown."""

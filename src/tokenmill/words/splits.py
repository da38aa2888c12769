"""How texts become words: a normalizer and a pre-tokenizer, by the name of who published them.

The steps are spelled as in a tokenizer.json, so that the library itself can run them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Split:
    """The steps before a model."""

    name: str
    """Of a published split; "" for one that a tokenizer's file holds."""
    normalizer: Json | None
    pre_tokenizer: Json | None
    byte_level: bool
    """Whether a model begins with the bytes of words, not with their characters."""

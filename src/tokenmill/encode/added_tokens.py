"""The ids of added tokens."""

from __future__ import annotations

import itertools
from typing import Any

Json = dict[str, Any]


def loaded_ids(vocab: dict[str, int], added: list[Json]) -> list[int]:
    """Return the ids that the reference assigns to added tokens.

    It ignores the ids in the file for tokens outside the vocabulary, and numbers them from
    `len(vocab)`, even if the vocabulary has gaps and therefore larger ids.
    """
    contents = [token["content"] for token in added]
    new = dict.fromkeys(content for content in contents if content not in vocab)
    ids = vocab | dict(zip(new, itertools.count(len(vocab)), strict=False))
    return [ids[content] for content in contents]

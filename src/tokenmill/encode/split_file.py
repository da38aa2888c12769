"""Find the split of texts into words: a published one by name, or that of a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.references.json_components import json_components
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.encode.words.splits import ALIASES, SPLITS, Split, named_split, split_of


def find_split(name: str) -> Split:
    """Return a published split, or the split of a tokenizer.json, its folder or a Hub model.

    Raises:
        UserError: the split does not exist, cannot be read, or takes too much time or memory.
    """
    if name in SPLITS or name in ALIASES:
        return named_split(name)
    if not ("/" in name or Path(name).exists() or name.endswith(".json")):
        return named_split(name)  # raises
    file = require_harmless(load_tokenizer_file(name))
    outline = KINDS[file.kind].outline_of(file, False)
    if outline is None:
        raise UserError(
            "the tokenizer has no pre-tokenizer that tokenmill can use",
            where=file.origin,
            why=f"its kind is {file.kind}",
            hint=f"name a tokenizer.json, or one of {', '.join(SPLITS)}",
        )
    return split_of(outline)


def canonical_steps(split: Split) -> dict[str, Any]:
    """Return the normalizer and pre-tokenizer in canonical form, equal for equivalent splits."""
    found = json_components(as_tokenizer_file(split))
    return {name: found[name] for name in ("normalizer", "pre_tokenizer")}


def as_tokenizer_file(split: Split) -> TokenizerFile:
    """Return a tokenizer.json with the steps of a split and a placeholder model."""
    model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    return TokenizerFile("huggingface", msgspec.json.encode({"model": model, **split.steps}))

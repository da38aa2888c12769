"""How texts become words: a published split by its name, or that of a tokenizer's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tokenmill.encode.kinds import KINDS
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.references.json_components import json_components
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.errors import UserError
from tokenmill.words.splits import ALIASES, SPLITS, Split, named_split, split_of


def find_split(name: str) -> Split:
    """A published split, or the steps of a tokenizer: tokenizer.json, its folder, or a Hub name.

    Raises:
        UserError: there is none, or its steps cannot be read, or do harm.
    """
    if name in SPLITS or name in ALIASES:
        return named_split(name)
    if not ("/" in name or Path(name).exists() or name.endswith(".json")):
        return named_split(name)  # raises
    file = require_harmless(load_tokenizer_file(name))
    outline = KINDS[file.kind].outline_of(file, False)
    if outline is None:
        raise UserError(
            "the tokenizer has no pre-tokenizer that could be used",
            where=file.origin,
            why=f"it is of kind {file.kind}",
            hint=f"name one of {', '.join(SPLITS)}, or a tokenizer.json",
        )
    return split_of(outline)


def canonical_steps(split: Split) -> dict[str, Any]:
    """Normalizer and pre-tokenizer in one spelling: equal for splits that are loaded alike."""
    found = json_components(as_tokenizer_file(split))
    return {name: found[name] for name in ("normalizer", "pre_tokenizer")}


def as_tokenizer_file(split: Split) -> TokenizerFile:
    """A tokenizer.json with the steps of a split, and a model that knows no word."""
    model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    steps = {"normalizer": split.normalizer, "pre_tokenizer": split.pre_tokenizer}
    return TokenizerFile("huggingface", msgspec.json.encode({"model": model, **steps}))

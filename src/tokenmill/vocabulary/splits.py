"""The split that somebody names: a published one, or that of a tokenizer's own file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.errors import UserError
from tokenmill.words.digits import Digits, with_digits
from tokenmill.words.splits import Split, named_split, split_of


def wanted_split(name: str, digits: Digits = "keep") -> Split:
    """A split by its name, or by the path of a tokenizer.json or of its folder.

    Raises:
        UserError: there is no such split, or the file is of another kind.
    """
    if not (name.endswith(".json") or Path(name).is_dir()):
        return with_digits(named_split(name), digits)
    file = load_tokenizer_file(name)
    if file.kind != "huggingface":
        why = f"it is a {file.kind} tokenizer, which has no steps of its own"
        raise UserError("cannot take the split of this tokenizer", where=name, why=why)
    return with_digits(split_of(msgspec.json.decode(file.data)), digits)

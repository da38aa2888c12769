"""The reference of the tokenizer that a dataset carries."""

from __future__ import annotations

from tokenmill.encode.engine import Reference
from tokenmill.encode.selection import load_reference
from tokenmill.encode.tokenizer_file import open_stored_tokenizer
from tokenmill.errors import VerificationError
from tokenmill.store.dataset import Dataset


def open_reference(dataset: Dataset) -> Reference:
    """The reference for the tokenizer that the dataset carries."""
    entry = dataset.manifest.tokenizer
    file = open_stored_tokenizer(dataset.folder / "tokenizer", entry.kind, entry.encoding)
    if file.sha256 != entry.sha256:
        raise VerificationError(
            "the stored tokenizer is not the one that encoded", where="tokenizer/"
        )
    control = dataset.manifest.policies["encode"]["special_tokens"] == "control"
    return load_reference(file, control)

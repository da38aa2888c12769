"""Open a tokenizer by the name given to a command: as for a build, or a dataset."""

from __future__ import annotations

from pathlib import Path

from tokenmill.core.paths import local_path
from tokenmill.encode.encodings import RankEncoding
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import MANIFEST_NAME
from tokenmill.store.stored_reference import stored_tokenizer


def open_tokenizer(
    tokenizer: str | Path | object, encoding: str | RankEncoding = ""
) -> TokenizerFile:
    """Return the tokenizer of a name, an object or a dataset.

    Raises:
        UserError: the tokenizer cannot be found.
        VerificationError: the dataset's tokenizer is not the one that encoded it.
    """
    dataset = dataset_of(tokenizer)
    if dataset:
        return stored_tokenizer(dataset)
    return require_harmless(load_tokenizer_file(tokenizer, encoding))


def dataset_of(tokenizer: str | Path | object) -> Dataset | None:
    """The dataset, if it was given instead of its tokenizer."""
    if isinstance(tokenizer, Dataset):
        return tokenizer
    if not isinstance(tokenizer, (str, Path)):
        return None
    folder = local_path(tokenizer, "the tokenizer")
    return Dataset(folder) if (folder / MANIFEST_NAME).is_file() else None

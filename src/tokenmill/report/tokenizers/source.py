"""A tokenizer as commands name it: what a build takes, or a dataset, which carries one."""

from __future__ import annotations

import os
from pathlib import Path

from tokenmill.encode.tokenizer_file import TokenizerFile, load_tokenizer_file
from tokenmill.run.stored_reference import stored_tokenizer
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import MANIFEST_NAME


def open_tokenizer(tokenizer: str | Path | object, encoding: str = "") -> TokenizerFile:
    """The tokenizer of a name or an object, or the one that a dataset carries.

    Raises:
        UserError: there is no such tokenizer.
        VerificationError: the dataset's tokenizer is not the one that encoded it.
    """
    dataset = dataset_of(tokenizer)
    return stored_tokenizer(dataset) if dataset else load_tokenizer_file(tokenizer, encoding)


def dataset_of(tokenizer: str | Path | object) -> Dataset | None:
    """The dataset, where it or its folder stands for its tokenizer."""
    if isinstance(tokenizer, Dataset):
        return tokenizer
    is_name = isinstance(tokenizer, (str, Path))
    if is_name and os.path.isfile(os.path.join(tokenizer, MANIFEST_NAME)):
        return Dataset(tokenizer)
    return None

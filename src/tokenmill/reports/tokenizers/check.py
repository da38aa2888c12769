"""Whether a dataset was built with the tokenizer that is used in training, or at inference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.encode.encodings import RankEncoding
from tokenmill.encode.fingerprint import Fingerprint, fingerprint_of
from tokenmill.encode.kinds import load_any_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.reports.tokenizers.difference import compare_tokenizers
from tokenmill.reports.tokenizers.subject import dataset_of, open_tokenizer
from tokenmill.store.dataset import Dataset
from tokenmill.store.stored_reference import stored_tokenizer


def check_tokenizer(
    dataset: Dataset | str | Path,
    tokenizer: str | Path | object,
    *,
    encoding: str | RankEncoding = "",
) -> str:
    """Check that a tokenizer is the one that a dataset was built with.

    Args:
        dataset: a dataset or its folder.
        tokenizer: as for `build`, or another dataset, to compare its tokenizer. If it is an
            object with `eos_token_id` and `pad_token_id`, these must match too.
        encoding: encoding of a tiktoken rank file, if the ranks do not identify it.

    Returns:
        The fingerprint of the tokenizer.

    Raises:
        UserError: the tokenizer is a different one. The message says what differs.
        VerificationError: the dataset's own tokenizer is not the one that encoded it.
    """
    dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    file = open_tokenizer(tokenizer, encoding)
    found = fingerprint_of(file)
    differences = [*_differences(dataset, found), *_other_prefix(dataset, tokenizer, file)]
    if not isinstance(tokenizer, (str, Path)):
        differences += _other_ids(dataset, tokenizer)
    if differences:
        raise UserError(
            "the tokenizer is not the one that the dataset was built with",
            where=f"{dataset.location}, compared with {file.origin}",
            why="\n       ".join(differences),
            hint="train with the dataset's own tokenizer, which is in its folder tokenizer/, or "
            "build the dataset again with this one",
        )
    return found.value


def _differences(dataset: Dataset, found: Fingerprint) -> Iterator[str]:
    if dataset.manifest.tokenizer.fingerprint == found.value:
        return
    # Another fingerprint, or none: older datasets do not name it.
    stored = fingerprint_of(stored_tokenizer(dataset))
    yield from map(str, compare_tokenizers(stored, found))


def _other_prefix(dataset: Dataset, tokenizer: object, file: TokenizerFile) -> Iterator[str]:
    """The prefix ids of a tokenizer, or those that another dataset was built with."""
    if other := dataset_of(tokenizer):
        theirs = other.manifest.tokenizer.prefix_ids
    else:
        reference, _ = load_any_reference(file)
        theirs = list(reference.prefix)
    ours = dataset.manifest.tokenizer.prefix_ids
    if ours != theirs:
        yield f"ids before a text: {ours} in the dataset, {theirs} by the tokenizer"


def _other_ids(dataset: Dataset, tokenizer: Any) -> Iterator[str]:
    """The end-of-document and padding tokens of an object that differ from the dataset."""
    entry = dataset.manifest.tokenizer
    for name, ours in (("eos_token_id", entry.eos_id), ("pad_token_id", entry.pad_id)):
        theirs = getattr(tokenizer, name, None)
        if ours is not None and isinstance(theirs, int) and theirs != ours:
            yield f"{name}: {ours} in the dataset, {theirs} in the tokenizer"

"""The tokenizer stored in a dataset, and the reference encoder for it."""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.core.errors import TokenmillError, UserError, VerificationError
from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file, open_stored_tokenizer
from tokenmill.store.dataset import Dataset


def open_reference(dataset: Dataset, tokenizer: object = None) -> Reference:
    """Return the reference for the tokenizer stored in a dataset.

    A dataset contains only a description of a Python tokenizer, and its module is never imported
    on the word of the dataset. For such a dataset, `tokenizer` is the object, or
    `python:module:name`, as given by the user.

    Raises:
        UserError: a Python tokenizer is missing, or is not the one that encoded the dataset.
        VerificationError: the stored tokenizer is not the one that encoded the dataset.
    """
    file = stored_tokenizer(dataset)
    if tokenizer is not None:
        file = _same(file, tokenizer)
    reference = load_reference(file, dataset.policies.control_tokens)
    stored, found = dataset.manifest.tokenizer.largest_id, reference.largest_id
    if stored != found:
        raise VerificationError(
            "the manifest does not match the tokenizer in the dataset",
            where=dataset.location,
            why=f"the largest id is {stored} in the manifest, but {found} in the tokenizer",
            hint="do not use this dataset; get a new copy from its source",
        )
    return reference


def decode_stored(reference: Reference, ids: Sequence[int]) -> str:
    """Decode token ids of a dataset.

    Raises:
        VerificationError: the tokenizer has no token for one of the ids.
    """
    try:
        return reference.decode(ids)
    except TokenmillError:
        raise
    except Exception as error:  # libraries raise KeyError, IndexError and others
        why = f"{type(error).__name__}: {error}"
        raise VerificationError("cannot decode token ids of the dataset", why=why) from error


def stored_tokenizer(dataset: Dataset) -> TokenizerFile:
    """Return the tokenizer stored in a dataset; for a Python tokenizer, its description.

    Raises:
        VerificationError: it is not the tokenizer that encoded the dataset.
    """
    entry = dataset.manifest.tokenizer
    folder = dataset.tokenizer_folder
    file = open_stored_tokenizer(folder, entry.kind, entry.encoding)
    if file.sha256 != entry.sha256:
        what = "the tokenizer in the dataset is not the one that encoded it"
        raise VerificationError(what, where=str(folder))
    return require_harmless(file)


def _same(stored: TokenizerFile, tokenizer: object) -> TokenizerFile:
    """Return the user's Python tokenizer, if it matches the description in the dataset."""
    from tokenmill.encode.references.python_source import differences

    if not KINDS[stored.kind].is_described:
        hint = "omit the tokenizer: the one in the dataset is used"
        raise UserError(
            "the dataset already contains its tokenizer", where=stored.origin, hint=hint
        )
    found = load_tokenizer_file(tokenizer)
    if different := differences(stored.data, found.data):
        why = "\n       ".join(different)
        raise UserError(
            "this is not the tokenizer that encoded the dataset", where=found.origin, why=why
        )
    return found

"""The tokenizer that a dataset carries, and its reference."""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file, open_stored_tokenizer
from tokenmill.errors import TokenmillError, UserError, VerificationError
from tokenmill.store.dataset import Dataset


def open_reference(dataset: Dataset, tokenizer: object = None) -> Reference:
    """The reference for the tokenizer that the dataset carries.

    Of a Python tokenizer it carries a description alone. No module is imported because a dataset
    names it: `tokenizer` is that object, or `python:module:name`, as the user gives it.

    Raises:
        UserError: a Python tokenizer is missing, or is not the one that encoded.
        VerificationError: the stored tokenizer is not the one that built the dataset.
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
    """The text of ids that a dataset holds.

    Raises:
        VerificationError: the tokenizer has no token for one of them.
    """
    try:
        return reference.decode(ids)
    except TokenmillError:
        raise
    except Exception as error:  # libraries raise KeyError, IndexError and others
        why = f"{type(error).__name__}: {error}"
        raise VerificationError("cannot decode token ids of the dataset", why=why) from error


def stored_tokenizer(dataset: Dataset) -> TokenizerFile:
    """The tokenizer that a dataset carries; of a Python object, its description.

    Raises:
        VerificationError: it is not the one that encoded.
    """
    entry = dataset.manifest.tokenizer
    folder = dataset.folder / "tokenizer"
    file = open_stored_tokenizer(folder, entry.kind, entry.encoding)
    if file.sha256 != entry.sha256:
        what = "the tokenizer in the dataset is not the one that encoded it"
        raise VerificationError(what, where=str(folder))
    return require_harmless(file)


def _same(stored: TokenizerFile, tokenizer: object) -> TokenizerFile:
    """The user's own tokenizer, if it is the one that the dataset describes."""
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

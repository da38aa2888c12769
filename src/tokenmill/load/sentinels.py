"""The tokens that mark prefix, middle and suffix: given by the user, or those of a known model."""

from __future__ import annotations

from tokenmill.core.errors import UserError
from tokenmill.encode.engine import Reference
from tokenmill.load.rows.infilling import Sentinels
from tokenmill.store.dataset import Dataset
from tokenmill.store.stored_reference import open_reference

Name = str | int | None

KNOWN: dict[str, tuple[Name, Name, Name, Name]] = {
    "StarCoder": ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", None),
    "SantaCoder": ("<fim-prefix>", "<fim-middle>", "<fim-suffix>", None),
    "Qwen2.5-Coder": ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", None),
    "Code Llama": ("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"),
    "DeepSeek-Coder": ("<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜fim▁hole｜>", None),
}
"""By model: prefix, middle and suffix, and the token that ends the middle if it is not EOS."""


def find_sentinels(dataset: Dataset, named: tuple[Name, Name, Name, Name]) -> Sentinels:
    """Return the ids of the `named` tokens (prefix, middle, suffix, end), or of a known model's.

    The tokenizer is opened only if an id has to be looked up.

    Raises:
        UserError: only some tokens are named, the tokenizer does not have a token, or two parts
            have the same token.
    """
    given = [name for name in named[:3] if name is not None]
    if given and len(given) < 3:
        why = "prefix, middle and suffix must be given together"
        raise UserError("some sentinels are missing", why=why)
    reference = None
    if not given or any(isinstance(name, str) for name in named):
        reference = open_reference(dataset)
    if reference is not None and not given:
        known = _of_a_known_model(reference, dataset)
        named = (*known[:3], known[3] if named[3] is None else named[3])
    ids = [-1 if name is None else _id_of(name, reference, dataset) for name in named]
    if len(set(ids)) < 4:
        raise UserError("the sentinels must be different tokens", why=f"their ids are {ids}")
    prefix, middle, suffix, end = ids
    return Sentinels(prefix, middle, suffix, end, dataset.manifest.tokenizer.eos_id)


def _of_a_known_model(reference: Reference, dataset: Dataset) -> tuple[Name, Name, Name, Name]:
    for names in KNOWN.values():
        if all(reference.token_id(str(name)) is not None for name in names[:3]):
            return names
    models = ", ".join(KNOWN)
    raise UserError(
        "the tokenizer has no known sentinels for fill-in-the-middle",
        where=dataset.location,
        why=f"it does not have the tokens of {models}",
        hint="name them, by content or id: FillInMiddle(prefix=..., middle=..., suffix=...)",
    )


def _id_of(name: str | int, reference: Reference | None, dataset: Dataset) -> int:
    if isinstance(name, int):
        largest = dataset.manifest.tokenizer.largest_id
        if name > largest:
            why = f"the largest id of the tokenizer is {largest}"
            raise UserError(f"no token has the id {name}", where=dataset.location, why=why)
        return name
    assert reference is not None
    found = reference.token_id(name)
    if found is None:
        hint = "give another token, or its id"
        raise UserError(f"the tokenizer has no token {name!r}", where=dataset.location, hint=hint)
    return found

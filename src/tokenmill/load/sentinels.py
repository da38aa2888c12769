"""The tokens that mark prefix, middle and suffix: those of known models, or named ones."""

from __future__ import annotations

from tokenmill.encode.engine import Reference
from tokenmill.errors import UserError
from tokenmill.load.rows.infilling import Sentinels
from tokenmill.store.dataset import Dataset
from tokenmill.stored_reference import open_reference

Name = str | int | None

KNOWN: dict[str, tuple[Name, Name, Name, Name]] = {
    "StarCoder": ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", None),
    "SantaCoder": ("<fim-prefix>", "<fim-middle>", "<fim-suffix>", None),
    "Qwen2.5-Coder": ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", None),
    "Code Llama": ("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"),
    "DeepSeek-Coder": ("<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜fim▁hole｜>", None),
}
"""By model: prefix, middle, suffix, and what ends the middle, if it is not EOS alone."""


def find_sentinels(dataset: Dataset, named: tuple[Name, Name, Name, Name]) -> Sentinels:
    """The ids of the tokens that are `named` (prefix, middle, suffix, end), or of a known model's.

    The tokenizer is opened only where an id has to be found.

    Raises:
        UserError: some are named and some are not, the tokenizer has no such token, or one token
            is to mark two parts.
    """
    given = [name for name in named[:3] if name is not None]
    if given and len(given) < 3:
        why = "prefix, middle and suffix are named together, or not at all"
        raise UserError("not all sentinels are named", why=why)
    reference = None
    if not given or any(isinstance(name, str) for name in named):
        reference = open_reference(dataset)
    if reference is not None and not given:
        known = _of_a_known_model(reference, dataset)
        named = (*known[:3], known[3] if named[3] is None else named[3])
    ids = [-1 if name is None else _id_of(name, reference, dataset) for name in named]
    if len(set(ids)) < 4:
        raise UserError("a token marks two parts", why=f"the sentinels' ids are {ids}")
    prefix, middle, suffix, end = ids
    return Sentinels(prefix, middle, suffix, end, dataset.manifest.tokenizer.eos_id)


def _of_a_known_model(reference: Reference, dataset: Dataset) -> tuple[Name, Name, Name, Name]:
    for names in KNOWN.values():
        if all(reference.token_id(str(name)) is not None for name in names[:3]):
            return names
    models = ", ".join(KNOWN)
    raise UserError(
        "the tokenizer has no sentinels for filling in the middle",
        where=dataset.location,
        why=f"it has those of none of these: {models}",
        hint="FillInMiddle(prefix=..., middle=..., suffix=...) names others, by content or id",
    )


def _id_of(name: str | int, reference: Reference | None, dataset: Dataset) -> int:
    if isinstance(name, int):
        largest = dataset.manifest.tokenizer.largest_id
        if name > largest:
            why = f"the largest id of the tokenizer is {largest}"
            raise UserError(f"there is no token {name}", where=dataset.location, why=why)
        return name
    assert reference is not None
    found = reference.token_id(name)
    if found is None:
        hint = "name another token, or give its id"
        raise UserError(f"the tokenizer has no token {name!r}", where=dataset.location, hint=hint)
    return found

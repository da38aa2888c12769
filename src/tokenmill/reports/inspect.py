"""Views of a dataset for people: documents with visible boundaries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import KINDS
from tokenmill.store.dataset import Dataset
from tokenmill.store.stored_reference import decode_stored, open_reference

NUM_EDGE_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens of a document as text, all of them with or without loss.

    Each boundary token is a piece.
    """

    text: str
    ids: list[int]
    boundary: bool
    has_loss: bool = True
    """Whether a training counts these tokens in the loss."""


@dataclass(frozen=True, slots=True)
class DocumentView:
    """A decoded document."""

    number: int
    shard: str
    facts: dict[str, Any]
    """The row of the documents table."""
    num_tokens: int
    pieces: list[Piece]

    @property
    def described(self) -> str:
        """The row of the documents table, without what the text shows."""
        shown = {name: value for name, value in self.facts.items() if value is not None}
        shown.pop("no_loss", None)
        return ", ".join(f"{name} {value}" for name, value in shown.items())


def view_document(
    dataset: Dataset | str | Path,
    number: int,
    tokenizer: object = None,
    max_tokens: int | None = None,
) -> DocumentView:
    """Decode a document of a dataset.

    Args:
        dataset: a dataset or its folder.
        number: number of the document, from 0.
        tokenizer: the tokenizer object or `python:MODULE:NAME`, if the dataset was built with a
            tokenizer written in Python. Other tokenizers are stored in the dataset.
        max_tokens: decode only this many tokens, from the start.

    Raises:
        UserError: the document does not exist, or the Python tokenizer is missing or differs.
    """
    found = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    return decoded_document(found, number, open_reference(found, tokenizer), max_tokens)


def decoded_document(
    dataset: Dataset, number: int, reference: Reference, max_tokens: int | None
) -> DocumentView:
    """Decode a document of an open dataset with an open tokenizer."""
    shard, index = dataset.locate(number)
    ids = shard.document(index).tolist()
    head = len(dataset.manifest.tokenizer.prefix_ids)
    facts = dataset.records(np.array([number]))[0]
    has_loss = [True] * len(ids)
    for span in facts.get("no_loss") or ():
        has_loss[span["start"] : span["stop"]] = [False] * (span["stop"] - span["start"])
    boundaries = {*range(head), len(ids) - 1}
    kinds = [(at if at in boundaries else -1, loss) for at, loss in enumerate(has_loss)]
    pieces = []
    shown = zip(kinds, ids[:max_tokens], strict=False)
    for (at, loss), group in itertools.groupby(shown, key=lambda token: token[0]):
        part = [token for _, token in group]
        pieces.append(Piece(_spelled(reference, part), part, at >= 0, loss))
    return DocumentView(number, shard.path("bin").name, facts, len(ids), pieces)


def edge_views(dataset: Dataset, tokenizer: object = None) -> Iterator[tuple[int, str, str]]:
    """Yield (document, first tokens, last tokens) of the first and the last document, decoded.

    Without the Python tokenizer that encoded, tokens are shown by their ids.
    """
    missing = tokenizer is None and KINDS[dataset.manifest.tokenizer.kind].is_described
    reference = None if missing else open_reference(dataset, tokenizer)
    for number in dataset.edge_documents:
        shard, index = dataset.locate(number)
        ids = shard.document(index).tolist()
        first, last = ids[:NUM_EDGE_TOKENS], ids[-NUM_EDGE_TOKENS:]
        yield number, _spelled(reference, first), _spelled(reference, last)


def _spelled(reference: Reference | None, ids: list[int]) -> str:
    """The text of some ids. A control token without text is shown as its id."""
    text = decode_stored(reference, ids) if reference else ""
    return text if text or not ids else "".join(f"<id {token}>" for token in ids)

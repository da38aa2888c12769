"""View a sequence of a plan: its text, boundaries, loss and padding."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tokenmill.encode.engine import Reference
from tokenmill.kernels.rows import BOS, EOS
from tokenmill.load.rows.provenance import Layout
from tokenmill.load.rows.reader import RowReader, Rows
from tokenmill.load.steps.schedule import token_counts
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan
from tokenmill.store.stored_reference import decode_stored, open_reference

TokenKind = Literal["text", "boundary", "set at cut"]


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive tokens of the same kind and with the same loss."""

    text: str
    ids: list[int]
    kind: TokenKind
    has_loss: bool
    """Whether these tokens count in the loss."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A decoded segment of a sequence."""

    document: int
    start: int
    column: int
    """Position of the first token in the row."""
    num_tokens: int
    document_tokens: int
    record: dict[str, Any]
    """The row of the documents table."""
    text: str
    runs: list[Run]

    @property
    def heading(self) -> str:
        """Which part of which document it is, and where the document comes from."""
        whole = self.num_tokens == self.document_tokens
        part = "all" if whole else f"{self.start:,} to {self.start + self.num_tokens:,}"
        source, dataset = self.record.get("source"), self.record.get("dataset")
        origin = f"{source}{f' of {dataset}' if dataset else ''}"
        origin += f", position {self.record.get('position'):,}"
        if self.record.get("id") is not None:
            origin += f", id {self.record['id']}"
        return f"document {self.document}, {part} of {self.document_tokens:,} tokens; {origin}"


@dataclass(frozen=True, slots=True)
class SequenceView:
    """A decoded sequence."""

    sequence: int
    row_length: int
    padding: int
    """Number of padding tokens, at any position."""
    segments: list[SegmentView]


def view_sequence(
    dataset: Dataset, plan: Plan, sequence: int, tokenizer: object = None
) -> SequenceView:
    """Decode a sequence of a plan, counted from 0. `tokenizer` is for datasets with a Python one.

    Raises:
        UserError: the sequence does not exist, or the Python tokenizer is missing or differs.
    """
    plan.segments(sequence)  # raises an error if it does not exist
    return decoded_sequence(RowReader(dataset, plan), sequence, open_reference(dataset, tokenizer))


def decoded_sequence(reader: RowReader, sequence: int, reference: Reference) -> SequenceView:
    """Decode a sequence of an open plan with an open tokenizer."""
    dataset, plan, chosen = reader.dataset, reader.plan, np.array([sequence])
    row_length = int(plan.rows.row_lengths_of(token_counts(plan, chosen))[0])
    rows, layout = reader.read_layout(chosen, row_length)
    records = dataset.records(layout.documents)
    head = len(dataset.manifest.tokenizer.prefix_ids)
    segments = [
        _segment(reference, rows, layout, number, (head, record))
        for number, record in enumerate(records)
    ]
    return SequenceView(sequence, row_length, int((~rows.real).sum()), segments)


def _segment(
    reference: Reference, rows: Rows, layout: Layout, number: int, known: tuple[int, dict[str, Any]]
) -> SegmentView:
    head, record = known
    start, length = int(layout.starts[number]), int(layout.lengths[number])
    document_tokens, kind = int(layout.document_lengths[number]), int(layout.kinds[number])
    kinds: list[TokenKind] = ["set at cut"] if kind & BOS else []
    for token in range(start, start + length):
        at_edge = token < head or token == document_tokens - 1
        kinds.append("boundary" if at_edge else "text")
    kinds += ["set at cut"] if kind & EOS else []
    column = int(layout.columns[number])
    ids = rows.ids[0, column : column + len(kinds)].tolist()
    has_loss = rows.has_label[0, column : column + len(kinds)].tolist()
    return SegmentView(
        document=int(layout.documents[number]),
        start=start,
        column=int(layout.columns[number]),
        num_tokens=length,
        document_tokens=document_tokens,
        record=record,
        text=decode_stored(reference, ids[bool(kind & BOS) :][:length]),
        runs=_runs(reference, ids, kinds, has_loss),
    )


def _runs(
    reference: Reference, ids: list[int], kinds: list[TokenKind], has_loss: list[bool]
) -> list[Run]:
    runs = []
    tokens = zip(kinds, has_loss, ids, strict=True)
    for (kind, loss), group in itertools.groupby(tokens, key=lambda token: token[:2]):
        members = [token for _, _, token in group]
        text = decode_stored(reference, members) or "".join(f"<id {token}>" for token in members)
        runs.append(Run(text, members, kind, loss))
    return runs

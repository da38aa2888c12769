"""The arrays of a batch: small ones as a whole, then every cell of any plan against a model.

Digit d has id d, the end of a document is 0, padding is 10, and -100 is no label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import EOS, PAD, Segment, as_lists, digits, plan_of

from tokenmill import Dataset
from tokenmill.load.columns import COLUMNS
from tokenmill.load.opening import open_batches
from tokenmill.load.rows.segmentation import Segmentation
from tokenmill.load.steps.curriculum import Curriculum, Phase

NO = -100
TEXTS = ["78956", "34", "1234567", "9"]
"""7 8 9 5 6 0, then 3 4 0, then 1 2 3 4 5 6 7 0, then 9 0."""
SPANS = [[[1, 3]], [[0, 1]], [[2, 4], [6, 7]], []]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return digits(tmp_path_factory.mktemp("digits"), TEXTS)


@pytest.fixture(scope="module")
def with_spans(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return digits(tmp_path_factory.mktemp("spans"), TEXTS, no_loss=SPANS)


BatchOf = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def batch_of(dataset: Dataset, folders: Iterable[Path]) -> BatchOf:
    """The batch of all rows of a plan, with lists in place of arrays."""

    def make(
        sequences: list[list[Segment]],
        *columns: str,
        of: Dataset = dataset,
        plan: dict[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        made = plan_of(next(iter(folders)), of, sequences, **{"sequence_length": 7, **(plan or {})})
        chosen = {"columns": columns} if columns else {}
        order = {"batch_size": len(sequences), "shuffle": "none"}
        batch = open_batches(of, made, **order, **chosen, **options).batch(0)
        return as_lists(batch)

    return make


EXAMPLE = [[(0, 0, 3), (1, 0, 3)], [(0, 3, 3), (3, 0, 2)]]
"""The first document is cut over both rows."""


# Whole batches.


def test_a_batch_holds_what_a_packed_model_needs(batch_of: BatchOf) -> None:
    assert batch_of(EXAMPLE, labels="next") == {
        "input_ids": [[7, 8, 9, 3, 4, 0, PAD], [5, 6, 0, 9, 0, PAD, PAD]],
        "labels": [[8, 9, 5, 4, 0, NO, NO], [6, 0, NO, 0, NO, NO, NO]],
        "position_ids": [[0, 1, 2, 0, 1, 2, 0], [0, 1, 2, 0, 1, 0, 1]],
        "cu_seqlens": [0, 3, 6, 7, 10, 12, 14],
        "max_seqlen": 3,
        "cu_seq_lens_q": [0, 3, 6, 7, 10, 12, 14],
        "cu_seq_lens_k": [0, 3, 6, 7, 10, 12, 14],
        "max_length_q": 3,
        "max_length_k": 3,
        "use_cache": False,
    }


def test_aligned_labels_belong_to_the_ids_beside_them(batch_of: BatchOf) -> None:
    assert batch_of(EXAMPLE, "input_ids", "labels", labels="aligned") == {
        "input_ids": [[7, 8, 9, 3, 4, 0, PAD], [5, 6, 0, 9, 0, PAD, PAD]],
        "labels": [[NO, 8, 9, NO, 4, 0, NO], [NO, 6, 0, NO, 0, NO, NO]],
    }


def test_arrays_have_the_types_that_models_ask_for(dataset: Dataset, folders) -> None:
    plan = plan_of(next(iter(folders)), dataset, EXAMPLE, sequence_length=7)
    batch = open_batches(dataset, plan, batch_size=2, columns=tuple(COLUMNS)).batch(0)
    assert isinstance(batch.pop("segmentation"), Segmentation)
    kinds = {name: getattr(value, "dtype", type(value)) for name, value in batch.items()}
    assert kinds == {
        **dict.fromkeys(["input_ids", "labels", "position_ids"], np.dtype("int64")),
        **dict.fromkeys(["attention_mask", "task_ids"], np.dtype("int64")),
        **dict.fromkeys(["cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k"], np.dtype("int32")),
        **dict.fromkeys(["max_seqlen", "max_length_q", "max_length_k", "num_targets"], int),
        "segment_ids": np.dtype("int32"),
        "loss_weights": np.dtype("float32"),
        "use_cache": bool,
    }


# Every cell of any plan, against a model in plain Python.


@dataclass
class Piece:
    """Cells between two edges."""

    ids: list[int]
    labels: list[int]
    first_position: int
    is_padding: bool = False
    is_left_out: bool = False
    """Its last token has a next one of its own, which a range without loss silences."""

    def part(self, first: int, stop: int) -> Piece:
        start = self.first_position
        if not self.is_padding:
            start += first
        return Piece(self.ids[first:stop], self.labels[first:stop], start, self.is_padding)


@dataclass
class Case:
    """A plan, and what is asked for."""

    sequences: list[list[Segment]]
    made_of: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    cut: int | None = None


def padding(size: int) -> Piece:
    return Piece([PAD] * size, [NO] * size, 0, is_padding=True)


def targets_of(case: Case, segment: Segment) -> Callable[[int], int]:
    """The label that the token at a place of the document makes, where anything predicts it."""
    document, start, _ = segment
    tokens = [*map(int, TEXTS[document]), EOS]
    spans = SPANS[document] if case.options["loss_spans"] else []
    counts = case.options["overlap_in_loss"]
    overlap = 0 if counts else case.made_of.get("overlap", 0)

    def target(place: int) -> int:
        silent = any(first <= place < stop for first, stop in spans)
        repeated = start > 0 and start <= place < start + overlap
        early = place < case.options["without_prefix"]
        return NO if silent or repeated or early else tokens[place]

    return target


def piece_of(case: Case, segment: Segment) -> Piece:
    """A segment with the tokens that are set at its cuts, and nothing said about its first."""
    document, start, length = segment
    tokens, stop = [*map(int, TEXTS[document]), EOS], start + length
    target = targets_of(case, segment)
    at_cuts = case.made_of.get("at_cuts", "nothing")
    bos = [EOS] if start > 0 and "bos" in at_cuts else []
    eos = [EOS] if stop < len(tokens) and "eos" in at_cuts else []
    ids = [*bos, *tokens[start:stop], *eos]
    if case.options["labels"] == "aligned":
        labels = [*(NO for _ in bos), *map(target, range(start, stop)), *(NO for _ in eos)]
        labels[0] = NO
        return Piece(ids, labels, start)
    goes_on = stop < len(tokens) and not (
        case.made_of.get("overlap") and not case.options["overlap_in_loss"]
    )
    labels = [*map(target, range(start + 1, stop)), target(stop) if goes_on else NO]
    keeps_end = case.made_of["long_documents"] == "keep-end"
    before = [target(start) if keeps_end else NO for _ in bos]
    spans = SPANS[document] if case.options["loss_spans"] else []
    is_left_out = goes_on and not eos and any(first <= stop < last for first, last in spans)
    return Piece(ids, [*before, *labels, *(NO for _ in eos)], start, is_left_out=is_left_out)


def row_of(case: Case, segments: list[Segment]) -> list[Piece]:
    """The pieces of a row, padding included."""
    pieces: list[Piece] = []
    before: Segment | None = None
    for segment in segments:
        piece = piece_of(case, segment)
        follows = bool(pieces) and not pieces[-1].is_padding
        has_bos = segment[1] > 0 and "bos" in case.made_of.get("at_cuts", "nothing")
        both_ends = case.made_of["long_documents"] == "keep-both-ends"
        if both_ends and before and before[0] == segment[0] and before[1] < segment[1]:
            pieces[-1].ids += piece.ids
            pieces[-1].labels += piece.labels
            pieces[-1].is_left_out = piece.is_left_out
        else:
            if case.options["across_documents"] and follows and not has_bos:
                aligned = case.options["labels"] == "aligned"
                labels, at = (piece.labels, 0) if aligned else (pieces[-1].labels, -1)
                if labels[at] == NO and (aligned or not pieces[-1].is_left_out):
                    labels[at] = targets_of(case, segment)(segment[1])
            pieces.append(piece)
        before = segment
        if gap := -len(piece.ids) % case.made_of.get("segment_multiple", 1):
            pieces.append(padding(gap))
    rest = case.made_of["sequence_length"] - sum(len(piece.ids) for piece in pieces)
    if pieces[-1].is_padding:
        rest += len(pieces.pop().ids)
    return pieces + ([padding(rest)] if rest else [])


def cut_rows(case: Case, row: list[Piece]) -> list[list[Piece]]:
    """A row as several shorter ones."""
    if case.cut is None:
        return [row]
    rows: list[list[Piece]] = []
    at = 0
    for piece in row:
        first = 0
        while first < len(piece.ids):
            if at % case.cut == 0:
                rows.append([])
            size = min(case.cut - at % case.cut, len(piece.ids) - first)
            rows[-1].append(piece.part(first, first + size))
            if at % case.cut == 0 and case.options["labels"] == "aligned":
                rows[-1][0].labels[0] = NO
            first, at = first + size, at + size
    return rows


def model(case: Case) -> dict[str, Any]:
    """Every column of the batch of all sequences."""
    rows = [part for segments in case.sequences for part in cut_rows(case, row_of(case, segments))]
    pieces = [piece for row in rows for piece in row]
    edges = np.cumsum([0] + [len(piece.ids) for piece in pieces]).tolist()
    per_row = max(map(len, case.sequences))
    per_row = per_row * (2 if case.made_of.get("segment_multiple", 1) > 1 else 1) + 1
    more = case.made_of["sequence_length"] // case.cut - 1 if case.cut else 0
    room = len(case.sequences) * (per_row + more)
    longest = max(len(piece.ids) for piece in pieces)
    padded = edges + [edges[-1]] * (room + 1 - len(edges))
    return {
        "input_ids": [[token for piece in row for token in piece.ids] for row in rows],
        "labels": [[label for piece in row for label in piece.labels] for row in rows],
        "position_ids": [model_positions(case, row) for row in rows],
        "segment_ids": [
            [
                -1 if piece.is_padding else number
                for number, piece in enumerate(row)
                for _ in piece.ids
            ]
            for row in rows
        ],
        "task_ids": [0] * len(rows),
        "attention_mask": [
            [int(not piece.is_padding) for piece in row for _ in piece.ids] for row in rows
        ],
        "loss_weights": [model_weights(case, row) for row in rows],
        "num_targets": sum(label != NO for piece in pieces for label in piece.labels),
        **dict.fromkeys(["cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k"], padded),
        **dict.fromkeys(["max_seqlen", "max_length_q", "max_length_k"], longest),
        "use_cache": False,
    }


def model_positions(case: Case, row: list[Piece]) -> list[float]:
    rule, scale = case.options["positions"], case.options["position_scale"]
    sizes = [len(piece.ids) for piece in row]
    if rule == "row":
        return [place * scale for place in range(sum(sizes))]
    firsts = [piece.first_position if rule == "document" else 0 for piece in row]
    return [
        (first + place) * scale
        for first, size in zip(firsts, sizes, strict=True)
        for place in range(size)
    ]


def model_weights(case: Case, row: list[Piece]) -> list[float]:
    power = {"token": 0.0, "square-root": 0.5, "document": 1.0}[case.options["loss_weights"]]
    weights = []
    for piece in row:
        number = sum(label != NO for label in piece.labels)
        weight = float(np.float32(1 / max(number, 1) ** power))
        weights += [weight if label != NO else 0.0 for label in piece.labels]
    return weights


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Segments that fit into rows, the same document again and again among them."""
    policy = draw(st.sampled_from(["split", "sliding-window", "keep-end", "keep-both-ends"]))
    length = 12
    made_of: dict[str, Any] = {"sequence_length": length, "long_documents": policy}
    if policy == "sliding-window":
        made_of |= {"overlap": draw(st.integers(0, 3)), "overlap_in_loss": draw(st.booleans())}
    if policy != "keep-both-ends":
        at_cuts = st.sampled_from(["nothing", "bos", "eos", "bos-and-eos"])
        made_of |= {"at_cuts": draw(at_cuts), "segment_multiple": draw(st.sampled_from([1, 3, 4]))}
    sequences = draw(st.lists(rows_that_fit(made_of), min_size=1, max_size=4))
    labels = draw(st.sampled_from(["aligned", "next"]))
    cut = draw(st.none() | st.sampled_from([1, 3, 4, 6, 12]))
    joins = policy == "keep-both-ends" and cut is not None  # whose places then are the true ones
    counts = draw(st.none() | st.booleans())
    spans = draw(st.booleans())
    prefix = draw(st.sampled_from([0, 0, 1, 2, 5]))
    options = {
        "labels": labels,
        "across_documents": draw(st.booleans()),
        "without_prefix": prefix,
        "overlap_in_loss": made_of.get("overlap_in_loss", False) if counts is None else counts,
        "loss_spans": spans,
        "positions": draw(st.sampled_from(["segment", "row"] + ["document"] * (not joins))),
        "position_scale": draw(st.sampled_from([1.0, 0.5])),
        "loss_weights": draw(st.sampled_from(["token", "document", "square-root"])),
    }
    return Case(sequences, made_of, options, cut)


@st.composite
def rows_that_fit(draw: st.DrawFn, made_of: dict[str, Any]) -> list[Segment]:
    """At least one segment."""
    multiple, at_cuts = made_of.get("segment_multiple", 1), made_of.get("at_cuts", "nothing")
    room, row = made_of["sequence_length"], []
    for _ in range(draw(st.integers(1, 5))):
        document = draw(st.integers(0, len(TEXTS) - 1))
        size = len(TEXTS[document]) + 1
        start = draw(st.integers(0, size - 1))
        length = draw(st.integers(1, min(size - start, 9)))
        tokens = length + 2 * (at_cuts != "nothing")
        tokens += -tokens % multiple
        if tokens <= room or not row:
            row.append((document, start, length))
            room -= tokens
    return row


def dense_rows(rows: list[list[int]]) -> list[list[int]]:
    """Segments numbered without gaps, where padding stands between them."""
    return [
        [-1 if number < 0 else sorted({*row} - {-1}).index(number) for number in row]
        for row in rows
    ]


@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_every_cell_of_every_column_is_that_of_the_model(
    case: Case, with_spans: Dataset, folders: Iterable[Path]
) -> None:
    plan = plan_of(next(iter(folders)), with_spans, case.sequences, **case.made_of)
    if case.cut is None:
        order = {"batch_size": len(plan), "shuffle": "none"}
    else:
        phases = (Phase(row_length=case.cut),)
        order = {"curriculum": Curriculum.of_plan(plan, with_spans, len(plan), phases)}
    batches = open_batches(with_spans, plan, columns=tuple(COLUMNS), **order, **case.options)
    whole = batches.global_batch(0)
    assert whole is not None
    found = as_lists(batches.batch(0))
    case.sequences = [case.sequences[number] for number in whole.sequences.tolist()]
    expected = model(case)
    segmentation = found.pop("segmentation")
    assert segmentation.edges.tolist() == [edge for edge, _ in groupby(expected["cu_seqlens"])]
    for each in (found, expected):
        each["segment_ids"] = dense_rows(each["segment_ids"])
    assert found == expected

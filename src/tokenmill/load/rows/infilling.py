"""The compiled loops of fill-in-the-middle: choose segments, cut them, and write the new rows.

A document 1 2 3 4 5 6 with BOS and EOS, cut after 2 and after 4:

    stored  BOS 1 2 3 4 5 6 EOS
    PSM     BOS PRE 1 2 SUF 5 6 MID 3 4 EOS
    SPM     BOS PRE SUF 5 6 MID 1 2 3 4 EOS

All tokens of a cut segment except the first are targets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.permutation import keyed_hash
from tokenmill.load.rows.assembly import (
    BOS,
    EOS,
    REAL,
    RESTART,
    TARGET,
    ZERO,
    Rules,
    fill_padding,
)
from tokenmill.load.rows.provenance import Layout
from tokenmill.load.rows.reader import Rows

BoolArray = npt.NDArray[np.bool_]
UInt64Array = npt.NDArray[np.uint64]

PSM, SPM, TOO_SHORT, WITHOUT_LOSS, HOLDS_SENTINEL, NO_PLACE = (1 << bit for bit in range(4, 10))
"""Outcomes for a segment chosen to be cut: bits of `Layout.kinds` above those of assembly."""

LEAST_TOKENS = 3
"""The shortest text in which prefix, middle and suffix can all have a token."""
PURPOSE = 0x46494D
"""Makes these draws independent of others with the same seed."""


class Sentinels(NamedTuple):
    """Ids that mark the parts of a text, as numbers for compiled code."""

    prefix: int
    middle: int
    suffix: int
    end: int
    """Id that ends the middle, before the EOS of a document; -1 for none."""
    eos: int
    """Id that ends the middle if the document continues in another segment and `end` is -1."""


class Cutting(NamedTuple):
    """Which segments to cut, and how, as numbers for compiled code."""

    rate: float
    spm_share: float
    sentinels: Sentinels
    reserved: int
    """Extra positions reserved for each segment."""
    num_prefix_ids: int
    """Number of tokens at the start of each document that are not text, such as BOS."""


@dataclass(frozen=True, slots=True)
class Origins:
    """What the random draws for rows depend on. Arrays have shape (num_rows,)."""

    sequences: Int64Array
    epochs: Int64Array
    source: int
    seed: int


def infilled(
    content: tuple[Rows, Layout, BoolArray], origins: Origins, rules: Rules, cutting: Cutting
) -> tuple[Rows, Layout] | None:
    """Return rows with some of their segments cut and rearranged.

    `content` is the rows, their segments, and which segments contain ranges without loss, shape
    (num_segments,). Return None if segments with their reserved positions do not fit in a row.
    """
    rows, layout, has_no_loss = content
    segments = (
        *(layout.rows, layout.columns, layout.starts, layout.lengths),
        *(layout.document_lengths, layout.kinds, has_no_loss.astype(np.int64)),
    )
    ids, flags = np.empty_like(rows.ids), np.empty_like(rows.flags)
    labels = np.empty_like(rows.labels) if rules.own_labels else ids
    placed = np.stack([layout.columns, layout.kinds])
    fits = _rewrite(
        ((rows.ids, rows.labels, rows.flags), (ids, labels, flags)),
        np.stack(segments),
        placed,
        _draws(layout, origins),
        rules,
        cutting,
    )
    if not fits:
        return None
    return Rows(ids, labels, flags, rows.aligned), replace(
        layout, columns=placed[0], kinds=placed[1]
    )


def _draws(layout: Layout, origins: Origins) -> UInt64Array:
    """Return four draws for each segment, shape (num_segments, 4)."""
    key = int(keyed_hash(np.array([PURPOSE], np.uint64), origins.seed)[0])
    keys = keyed_hash(origins.sequences.astype(np.uint64), key)
    epochs = origins.epochs + (np.int64(origins.source) << 48)
    keys = keyed_hash(keys + epochs.astype(np.uint64), key)
    keys = keyed_hash(keys[layout.rows] + layout.documents.astype(np.uint64), key)
    keys = keyed_hash(keys + layout.starts.astype(np.uint64), key)
    numbered = np.repeat(keys, 4) + np.tile(np.arange(4, dtype=np.uint64), len(keys))
    return keyed_hash(numbered, key).reshape(-1, 4)


@compiled
def _rewrite(
    rows: tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]],
    segments: Int64Array,
    placed: Int64Array,
    draws: UInt64Array,
    rules: Rules,
    cutting: Cutting,
) -> bool:
    """Write every cell of the new rows once. Return False if segments do not fit in a row."""
    old, new = rows
    num_rows, row_length = old[0].shape
    row, column = ZERO, ZERO
    for i in range(segments.shape[1]):
        while row < segments[0, i]:
            fill_padding(new, row, column, row_length, rules)
            row, column = row + 1, ZERO
        cells, text, added = _parts(segments[:, i], rules, cutting)
        fate = _fate(old[0][row, text[0] : text[1]], segments[6, i], added, draws[i], cutting)
        is_cut = fate & (PSM | SPM)
        size = cells[1] - cells[0] + (added if is_cut else 0)
        stop = column + -(-size // rules.multiple) * rules.multiple
        if stop > row_length:
            return False
        here = (row, column, column + size)
        if is_cut:
            edges = (cells[0], text[0], *_cuts(draws[i], text), text[1], cells[1])
            ids = new[0][row, column : column + size]
            _join(ids, old[0][row], edges, fate == SPM, added > 3, cutting.sentinels)
            _label(new, here, rules)
        else:
            _move(new, here, old, cells[0], rules)
        placed[0, i], placed[1, i] = column, placed[1, i] | fate
        fill_padding(new, row, column + size, stop, rules)
        column = stop
    while row < num_rows:
        fill_padding(new, row, column, row_length, rules)
        row, column = row + 1, ZERO
    return True


@inlined
def _parts(
    segment: Int64Array, rules: Rules, cutting: Cutting
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Return the cells of a segment, those of its text, and by how many tokens it would grow."""
    _, first, start, length, document_length, kind, _ = segment
    body = first + (len(rules.before) if kind & BOS else 0)
    stop = body + length + (len(rules.after) if kind & EOS else 0)
    is_last = start + length == document_length
    begin = body + min(length, max(cutting.num_prefix_ids - start, 0))
    end = max(body + length - (1 if is_last else 0), begin)
    is_ended = is_last or kind & EOS > 0
    added = 3 if is_ended and cutting.sentinels.end < 0 else 4
    return (first, stop), (begin, end), added


@inlined
def _fate(
    text: npt.NDArray[Any], has_no_loss: int, added: int, draws: UInt64Array, cutting: Cutting
) -> int:
    """Return the outcome for a text; 0 if it is not chosen."""
    if _unit(draws[0]) >= cutting.rate:
        return 0
    if len(text) < LEAST_TOKENS:
        return TOO_SHORT
    if has_no_loss:
        return WITHOUT_LOSS
    if added > cutting.reserved:
        return NO_PLACE
    prefix, middle, suffix, end, _ = cutting.sentinels
    for token in text:
        if token in (prefix, middle, suffix, end):
            return HOLDS_SENTINEL
    return SPM if _unit(draws[1]) < cutting.spm_share else PSM


@inlined
def _cuts(draws: UInt64Array, text: tuple[int, int]) -> tuple[int, int]:
    """Return two random positions from the start to the end of a text, in order."""
    places = np.uint64(text[1] - text[0] + 1)
    first, second = int(draws[2] % places), int(draws[3] % places)
    return text[0] + min(first, second), text[0] + max(first, second)


@inlined
def _join(
    ids: npt.NDArray[Any],
    source: npt.NDArray[Any],
    edges: tuple[int, int, int, int, int, int],
    suffix_first: bool,
    is_ended: bool,
    sentinels: Sentinels,
) -> None:
    """Write the parts of a text with sentinels, between the tokens before and after the text."""
    first, begin, cut, second_cut, end, stop = edges
    prefix, middle, suffix, last, eos = sentinels
    place = _put(ids, 0, source, first, begin)
    ids[place] = prefix
    place += 1
    if not suffix_first:
        place = _put(ids, place, source, begin, cut)
    ids[place] = suffix
    place = _put(ids, place + 1, source, second_cut, end)
    ids[place] = middle
    place = _put(ids, place + 1, source, begin if suffix_first else cut, second_cut)
    if is_ended:
        ids[place] = last if last >= 0 else eos
        place += 1
    _put(ids, place, source, end, stop)


@inlined
def _put(ids: npt.NDArray[Any], place: int, source: npt.NDArray[Any], first: int, stop: int) -> int:
    """Copy tokens [first, stop) to `place`, and return the position after them."""
    for j in range(first, stop):
        ids[place + j - first] = source[j]
    return place + stop - first


@inlined
def _label(rows: tuple[Any, Any, Any], here: tuple[int, int, int], rules: Rules) -> None:
    """Write flags and labels of a cut segment: all its tokens except the first are targets."""
    ids, labels, flags = rows
    row, first, stop = here
    shift = 1 if rules.next_labels else 0
    for j in range(first, stop):
        is_target = first <= j + shift - 1 < stop - 1
        flags[row, j] = REAL | TARGET if is_target else REAL
        if rules.own_labels:
            labels[row, j] = ids[row, j + shift] if is_target else rules.ignored
    flags[row, first] |= RESTART


@inlined
def _move(
    new: tuple[Any, Any, Any],
    here: tuple[int, int, int],
    old: tuple[Any, Any, Any],
    begin: int,
    rules: Rules,
) -> None:
    """Copy an unchanged segment to its new position."""
    row, first, stop = here
    for j in range(stop - first):
        new[0][row, first + j] = old[0][row, begin + j]
        new[2][row, first + j] = old[2][row, begin + j]
        if rules.own_labels:
            new[1][row, first + j] = old[1][row, begin + j]


@inlined
def _unit(value: np.uint64) -> float:
    """Return a number in [0, 1) from the upper 53 bits."""
    return np.float64(value >> np.uint64(11)) / 9007199254740992.0

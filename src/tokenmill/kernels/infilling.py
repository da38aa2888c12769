"""Loops of fill-in-the-middle: choose segments, cut them, and write the new rows.

A document 1 2 3 4 5 6 with BOS and EOS, cut after 2 and after 4:

    stored  BOS 1 2 3 4 5 6 EOS
    PSM     BOS PRE 1 2 SUF 5 6 MID 3 4 EOS
    SPM     BOS PRE SUF 5 6 MID 1 2 3 4 EOS

All tokens of a cut segment except the first are targets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, UInt64Array
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.permutation import unit_interval
from tokenmill.kernels.rows import BOS, EOS, REAL, RESTART, TARGET, ZERO, Rules, fill_padding

PSM, SPM, TOO_SHORT, WITHOUT_LOSS, HOLDS_SENTINEL, NO_PLACE = (1 << bit for bit in range(4, 10))
"""Outcomes for a segment chosen to be cut: bits of `Layout.kinds` above those of assembly."""

LEAST_TOKENS = 3
"""The shortest text in which prefix, middle and suffix can all have a token."""


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


@compiled
def rewrite(
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
    if unit_interval(draws[0]) >= cutting.rate:
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
    return SPM if unit_interval(draws[1]) < cutting.spm_share else PSM


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

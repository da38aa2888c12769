"""Loops that assemble rows: look up segments, locate, place and write them.

`fill` writes all rows of tokenmill: those of plans, of text streams, and of `CausalLMTokenizer`.
Every number from a file is checked against its bounds before it is used to read memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array
from tokenmill.kernels.compiled import compiled, inner
from tokenmill.kernels.memory import eight_bytes_at, mapped_array

IGNORE_INDEX = -100
"""The label that PyTorch's cross-entropy ignores."""

NO_TOKENS: Int64Array = np.empty(0, np.int64)

PADDING, REAL, RESTART, TARGET = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(4)
"""Flags of a token in a row: none; not padding; its position is 0; it has a label."""

ZERO = cast("int", np.int64(0))
"""A 0 for compiled functions. Numba would compile them once more for a literal number."""

LENGTH_BITS = np.uint64(0xFFFFFFFF)
"""Mask of a document's length in eight bytes of an index."""

BOS, EOS, JOINED, GOES_ON = 1, 2, 4, 8
"""Flags of a segment: a token is added before it, or after it; it is joined to the segment before;
its document continues in another segment."""

PROBLEMS = (
    "",
    "its offsets are out of order",
    "it names documents that do not exist",
    "a segment has no token",
    "a segment reaches outside its document",
    "a sequence is longer than its row",
    "an index reaches outside its tokens",
)
"""Problems by number; 0 means none."""


class Rules(NamedTuple):
    """How segments become rows, as numbers and arrays for compiled code."""

    before: Int64Array
    """Tokens added before a segment with the flag BOS."""
    after: Int64Array
    """Tokens added after a segment with the flag EOS."""
    pad: int
    ignored: int = IGNORE_INDEX
    """Value for tokens without a label."""
    sets_bos: bool = False
    """Whether segments that do not start their document have the flag BOS."""
    sets_eos: bool = False
    """Whether segments that do not end their document have the flag EOS."""
    joins: bool = False
    """Whether adjacent segments of a document are joined (its start and its end)."""
    multiple: int = 1
    next_labels: bool = False
    """Whether labels are the next tokens, or those at the same position."""
    own_labels: bool = True
    """Whether labels are a separate array, or the ids."""
    bos_predicts: bool = True
    """Whether a token after a BOS at a cut is a target."""
    across: bool = False
    """Whether the last token of a segment predicts the first one of the next."""
    overlap: int = 0
    """Number of tokens at the start of a continued segment that are not targets."""
    prefix: int = 0
    """Number of tokens at the start of a document that are not targets."""


@compiled
def look_up(
    sequences: Int64Array,
    plan: tuple[Any, Any, Any, Any],
    first_documents: Int64Array,
    row_length: int,
) -> tuple[int, Int64Array]:
    """Return a problem, and the segments: row, shard, document, start and length, shape (5, n)."""
    offsets, documents, starts, lengths = plan
    total = 0
    for i in range(len(sequences)):
        first, last = offsets[sequences[i]], offsets[sequences[i] + 1]
        if first < 0 or last <= first or last > len(documents) or last - first > row_length:
            return 1, np.empty((5, 0), np.int64)
        total += last - first
    segments = np.empty((5, total), np.int64)
    place = 0
    for i in range(len(sequences)):
        for k in range(offsets[sequences[i]], offsets[sequences[i] + 1]):
            document = np.int64(documents[k])
            if document < 0 or document >= first_documents[-1]:
                return 2, segments
            if lengths[k] < 1:
                return 3, segments
            segments[0, place] = i
            segments[1, place] = _shard_of(document, first_documents)
            segments[2, place] = document
            segments[3, place] = starts[k]
            segments[4, place] = lengths[k]
            place += 1
    return 0, segments


@inner
def _shard_of(document: np.int64, first_documents: Int64Array) -> int:
    """Return the shard of a document. `np.searchsorted` would double the time to compile."""
    low, high = 0, len(first_documents) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if first_documents[middle] <= document:
            low = middle
        else:
            high = middle
    return low


@compiled
def locate(
    segments: Int64Array,
    first_documents: Int64Array,
    table: Int64Array,
    like: npt.NDArray[np.integer],
    blocks: tuple[Int64Array, npt.NDArray[np.uint8], int],
) -> tuple[int, Int64Array, Int64Array]:
    """Return a problem, the location of segments, shape (2, n), and the blocks to check.

    The location is the number of tokens of the segment's document, and the document's first token
    in the shard. `like` has the dtype of tokens. `blocks` is the first block of each shard, one bit
    per block that has been checked, and the bytes of a block.
    """
    first_blocks, checked, block_bytes = blocks
    found = np.empty((2, segments.shape[1]), np.int64)
    total = 0
    for i in range(segments.shape[1]):
        total += segments[4, i]
    new = np.empty(total * like.itemsize // block_bytes + 3 * segments.shape[1], np.int64)
    num_new = 0
    for i in range(segments.shape[1]):
        shard, start, length = segments[1, i], segments[3, i], segments[4, i]
        local = segments[2, i] - first_documents[shard]
        num_tokens, num_documents = table[shard, 2], table[shard, 3]
        # An index has 20 bytes per document and 8 more, so eight bytes from each length are inside.
        index = table[shard, 1]
        found[0, i] = np.int64(eight_bytes_at(index + 4 * local) & LENGTH_BITS)
        at = np.int64(eight_bytes_at(index + 4 * num_documents + 8 * local))
        found[1, i] = at // like.itemsize
        if start + length > found[0, i]:
            return 4, found, new[:num_new]
        if found[1, i] < 0 or found[1, i] + found[0, i] > num_tokens:
            return 6, found, new[:num_new]
        stop = found[1, i] + min(start + length + 1, found[0, i])
        first_block = (found[1, i] + start) * like.itemsize // block_bytes
        for block in range(first_block, (stop * like.itemsize - 1) // block_bytes + 1):
            number = first_blocks[shard] + block
            if not checked[number >> 3] >> (number & 7) & 1:
                new[num_new] = number
                num_new += 1
    return 0, found, new[:num_new]


@inner
def place(
    segments: Int64Array, document_lengths: Int64Array, row_length: int, rules: Rules
) -> tuple[int, Int64Array]:
    """Return a problem, and the column and flags of each segment, shape (2, n), in order."""
    placed = np.empty((2, segments.shape[1]), np.int64)
    row, column = -1, 0
    for i in range(segments.shape[1]):
        if segments[0, i] != row:
            row, column = segments[0, i], 0
        start, length = segments[3, i], segments[4, i]
        kind = BOS if rules.sets_bos and start > 0 else 0
        if start + length < document_lengths[i]:
            kind |= GOES_ON | (EOS if rules.sets_eos else 0)
        if rules.joins and column and segments[2, i] == segments[2, i - 1]:
            kind |= JOINED if start > segments[3, i - 1] else 0
        size = length + (len(rules.before) if kind & BOS else 0)
        size += len(rules.after) if kind & EOS else 0
        size = -(-size // rules.multiple) * rules.multiple
        if column + size > row_length:
            return 5, placed
        placed[0, i], placed[1, i] = column, kind
        column += size
    return 0, placed


@compiled
def fill(
    rows: tuple[Any, Any, npt.NDArray[np.uint8]],
    segments: Int64Array,
    placed: Int64Array,
    found: Int64Array,
    table: Int64Array,
    like: npt.NDArray[np.integer],
    rules: Rules,
) -> None:
    """Write the ids, labels and flags of rows, every cell once.

    `segments`, `found` and `placed` are the results of `look_up`, `locate` and `place`. Columns are
    inside their row, and ascend within a row.
    """
    ids, _, flags = rows
    row, column = ZERO, ZERO
    for i in range(segments.shape[1]):
        while row < segments[0, i]:
            fill_padding(rows, row, column, ids.shape[1], rules)
            row, column = row + 1, ZERO
        start, length, kind = segments[3, i], segments[4, i], placed[1, i]
        fill_padding(rows, row, column, placed[0, i], rules)
        column = placed[0, i]
        body = column + (len(rules.before) if kind & BOS else 0)
        stop = body + length + (len(rules.after) if kind & EOS else 0)
        tokens = mapped_array(table[segments[1, i], 0], table[segments[1, i], 2], like)
        tokens = tokens[found[1, i] + start : found[1, i] + found[0, i]]
        _copy(ids, (row, column, body), rules.before, ZERO)
        _copy(ids, (row, body, body + length), tokens, ZERO)
        _copy(ids, (row, body + length, stop), rules.after, ZERO)
        _set(flags, (row, column, stop), REAL)
        if not kind & JOINED:
            flags[row, column] |= RESTART
        _label(rows, (row, column, body, stop), (start, length, kind), tokens, rules)
        column = stop
    while row < ids.shape[0]:
        fill_padding(rows, row, column, ids.shape[1], rules)
        row, column = row + 1, ZERO


@compiled
def assemble(
    rows: tuple[Any, Any, npt.NDArray[np.uint8]],
    segments: Int64Array,
    found: Int64Array,
    table: Int64Array,
    like: npt.NDArray[np.integer],
    rules: Rules,
) -> tuple[int, Int64Array]:
    """Run `place` and `fill`, and return the result of `place`."""
    problem, placed = place(segments, found[0], rows[0].shape[1], rules)
    if not problem:
        fill(rows, segments, placed, found, table, like, rules)
    return problem, placed


@compiled
def join(
    row: npt.NDArray[np.integer],
    shards: Int64Array,
    found: Int64Array,
    table: Int64Array,
    like: npt.NDArray[np.integer],
) -> None:
    """Write whole documents one after another into `row`, shape (1, num_tokens), and fill it.

    `shards` has the shard of each document, and `found` is a result of `locate`.
    """
    stop = ZERO
    for i in range(len(shards)):
        tokens = mapped_array(table[shards[i], 0], table[shards[i], 2], like)
        start, stop = stop, stop + found[0, i]
        _copy(row, (ZERO, start, stop), tokens, found[1, i])


@inner
def _label(
    rows: tuple[Any, Any, npt.NDArray[np.uint8]],
    place: tuple[int, int, int, int],
    segment: tuple[int, int, int],
    tokens: npt.NDArray[np.integer],
    rules: Rules,
) -> None:
    """Write the labels of a segment. `tokens` start with it and continue in its document."""
    _, labels, flags = rows
    row, column, body, stop = place
    start, length, kind = segment
    # Token j of the segment is a target unless nothing precedes it or a rule excludes it.
    first = 0 if kind & BOS and rules.bos_predicts else 1
    if start > 0:
        first = max(first, rules.overlap)
    first = max(first, rules.prefix - start)
    # If the document continues, there is one more target: that of the last token.
    last = length
    if rules.next_labels and kind & GOES_ON and not rules.overlap:
        last = length + 1
    shift = 1 if rules.next_labels else 0
    left, right = body + first - shift, max(body + last, body + first) - shift
    if rules.own_labels:
        _set(labels, (row, column, min(left, stop)), rules.ignored)
        _copy(labels, (row, left, right), tokens, first)
        _set(labels, (row, max(right, column), stop), rules.ignored)
    targets = flags[row, left:right]
    for j in range(len(targets)):
        targets[j] |= TARGET
    is_left_out = start < rules.prefix or (start > 0 and rules.overlap > 0)
    if rules.across and column and not kind & (BOS | JOINED) and not is_left_out:
        at = column - shift
        if flags[row, column - 1] & REAL and not flags[row, at] & TARGET:
            flags[row, at] |= TARGET
            if rules.own_labels:
                labels[row, at] = tokens[0]


@inner
def fill_padding(
    rows: tuple[Any, Any, npt.NDArray[np.uint8]], row: int, first: int, stop: int, rules: Rules
) -> None:
    """Write padding as its own segment, with positions from 0."""
    ids, labels, flags = rows
    _set(ids, (row, first, stop), rules.pad)
    _set(flags, (row, first, stop), PADDING)
    if rules.own_labels:
        _set(labels, (row, first, stop), rules.ignored)
    if first < stop and (first == 0 or flags[row, first - 1] & REAL):
        flags[row, first] = RESTART


# A slice takes a tenth of a second to compile, so these functions contain it only once.


@inner
def _copy(
    rows: npt.NDArray[Any], cells: tuple[int, int, int], source: npt.NDArray[Any], first: int
) -> None:
    """Copy `source` from `first` on into cells (row, first, stop)."""
    values, tokens = rows[cells[0], cells[1] : cells[2]], source[first:]
    for j in range(min(len(values), len(tokens))):
        values[j] = tokens[j]


@inner
def _set(rows: npt.NDArray[Any], cells: tuple[int, int, int], value: int | np.integer) -> None:
    values = rows[cells[0], cells[1] : cells[2]]
    for j in range(len(values)):
        values[j] = value

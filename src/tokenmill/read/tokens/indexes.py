"""Indexes of token files, of which nothing is trusted.

Megatron's `.idx` names sequences of the `.bin`, and the sequences of each document; see
`store/layout.py`. Its tools write several sequences per document, and an index can filter, reorder
and repeat. datatrove's `.ds.index` holds the end of each document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.read.source import Source
from tokenmill.read.tokens.pieces import Ranges, TokenFile, damaged, gathered, mapped
from tokenmill.store.layout import HEADER, MAGIC

AT_ONCE = 1 << 18
"""Documents whose ranges are read at a time."""
DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Integer dtypes of Megatron by their codes."""
_TOKEN_SIZE = re.compile(rb"[^\n]*\|(\d)\n")


def megatron_file(source: Source) -> TokenFile:
    """Return the documents of a pair, after a check of its index.

    Raises:
        DamagedInputError: the index contradicts itself or the `.bin`.
        UserError: its sequences have modes, as those of several kinds of data.
    """
    index = Path(source.location).with_suffix(".idx")
    dtype, _, _ = megatron_header(index)
    return _indexed(source, dtype, index, lambda: _megatron_ranges(index, dtype.itemsize))


def datatrove_file(source: Source, dtype: np.dtype[np.integer], index: Path) -> TokenFile:
    """Return the documents of a file, after a check of its index.

    Raises:
        DamagedInputError: the documents of the index are not the file from its start to its end.
    """
    file = _indexed(source, dtype, index, lambda: _datatrove_ranges(index))
    if file.plain_dtype is None:
        why = f"its documents end at id {file.num_tokens}, and the file does not"
        raise damaged(index, why)
    return file


def _indexed(
    source: Source,
    dtype: np.dtype[np.integer],
    index: Path,
    ranges: Callable[[], Iterator[Ranges]],
) -> TokenFile:
    """Return the documents that an index names, after a check of all its ranges."""
    path = Path(source.location)
    num_ids, total, is_plain = len(mapped(path, dtype)), 0, True
    for some in _checked(ranges(), index, num_ids):
        before = total + np.cumsum(some.lengths) - some.lengths
        is_plain = is_plain and bool((before == some.starts)[some.lengths > 0].all())
        total += int(some.lengths.sum())
    return TokenFile(
        source=source,
        num_tokens=total,
        plain_dtype=dtype if is_plain and total == num_ids else None,
        pieces=lambda: gathered(mapped(path, dtype), _checked(ranges(), index, num_ids)),
    )


def _checked(batches: Iterable[Ranges], index: Path, num_ids: int) -> Iterator[Ranges]:
    """Yield ranges; raise a DamagedInputError if one of them is outside the file."""
    done = 0
    for ranges in batches:
        starts, lengths = ranges.starts, ranges.lengths
        outside = (lengths < 0) | (starts < 0) | (starts > num_ids - lengths)
        if outside.any():
            bad = int(outside.argmax())
            why = f"its entry {done + bad} has {lengths[bad]} ids from id {starts[bad]}"
            raise damaged(index, f"{why}; the file has {num_ids} ids")
        done += len(starts)
        yield ranges


def _datatrove_ranges(index: Path) -> Iterator[Ranges]:
    """Yield one range for each document. The index holds their ends: u64, in ids, without a 0."""
    all_stops, done = mapped(index, np.dtype("<u8")), 0
    for first in range(0, len(all_stops), AT_ONCE):
        stops = all_stops[first : first + AT_ONCE].astype(np.int64)
        starts = np.append(done, stops[:-1])
        yield Ranges(starts, stops - starts, stops - done)
        done = int(stops[-1])


def _megatron_ranges(index: Path, token_bytes: int) -> Iterator[Ranges]:
    """Yield one range for each sequence of the next documents."""
    _, num_sequences, num_bounds = megatron_header(index)
    data, start = mapped(index, np.dtype(np.uint8)), HEADER.size
    all_lengths = np.frombuffer(data, "<i4", num_sequences, start)
    all_places = np.frombuffer(data, "<i8", num_sequences, start + 4 * num_sequences)
    all_bounds = np.frombuffer(data, "<i8", num_bounds, start + 12 * num_sequences)
    if (all_bounds[0], all_bounds[-1]) != (0, num_sequences):
        why = f"its documents go from sequence {all_bounds[0]} to {all_bounds[-1]}"
        raise damaged(index, f"{why}, and it has {num_sequences} sequences")
    for first in range(0, num_bounds - 1, AT_ONCE):
        bounds = all_bounds[first : first + AT_ONCE + 1].astype(np.int64)
        if (bounds[1:] < bounds[:-1]).any() or bounds[-1] > num_sequences:
            raise damaged(index, f"a document after number {first} ends before it begins")
        sequences = slice(bounds[0], bounds[-1])
        lengths = all_lengths[sequences].astype(np.int64)
        places = all_places[sequences].astype(np.int64)
        if (places % token_bytes).any():
            raise damaged(index, f"a sequence begins between two ids of {token_bytes} bytes")
        ends = np.append(0, np.cumsum(lengths))[bounds - bounds[0]]
        yield Ranges(places // token_bytes, lengths, ends[1:])


def megatron_header(index: Path) -> tuple[np.dtype[np.integer], int, int]:
    """Return the dtype of ids, the number of sequences, and the length of the list of documents.

    Raises:
        DamagedInputError: the header is damaged, or does not fit the size of the index.
        UserError: the sequences have modes, as those of several kinds of data.
    """
    size = index.stat().st_size
    if size < HEADER.size:
        raise damaged(index, f"it has {size} bytes; the header alone has {HEADER.size}")
    with open(index, "rb") as file:
        magic, version, code, num_sequences, num_bounds = HEADER.unpack(file.read(HEADER.size))
    if magic != MAGIC or version != 1:
        raise damaged(index, f"it begins with {magic!r}, version {version}")
    if code not in DTYPES:
        why = f"its dtype code is {code}; those of integers are {', '.join(map(str, DTYPES))}"
        raise damaged(index, why)
    rest = size - HEADER.size - 12 * num_sequences - 8 * num_bounds
    if rest == num_sequences > 0:
        raise UserError(
            "cannot adopt an index of several kinds of data",
            where=str(index),
            why="its sequences have modes: some are no text, and their ids no tokens",
            hint="write the text alone with Megatron's tools",
        )
    if rest or not num_bounds:
        parts = f"{num_sequences} sequences and {num_bounds} bounds of documents"
        raise damaged(index, f"{parts} do not fit its {size} bytes")
    return np.dtype(DTYPES[code]), num_sequences, num_bounds


def datatrove_dtype(metadata: Path) -> np.dtype[np.integer] | None:
    """Return the dtype that datatrove noted in `.ds.metadata`; None if it did not."""
    if not metadata.is_file():
        return None
    with open(metadata, "rb") as file:
        found = _TOKEN_SIZE.match(file.read(1 << 16))
    if found is None or found[1] not in (b"2", b"4"):
        raise damaged(metadata, "its first line does not end with the bytes of an id, 2 or 4")
    return np.dtype(f"<u{found[1].decode()}")

"""A run: the word counts of one part of a corpus in one file, by group, sorted by bytes.

    8 bytes    magic
    8 bytes    length of the following list, little-endian
    a list     JSON: [name, num_words, num_bytes] of every group, padded with spaces
    by group   offsets (int64), counts (int64), words (padded to 8 bytes)

Runs stay in the working folder of a job until they are merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import UInt8Array
from tokenmill.encode.words.counts import WordCounts
from tokenmill.store.file_map import FileMap
from tokenmill.store.manifest import MAX_COUNT

_MAGIC = b"tmwords1"
_ALIGNMENT = 8


def write_run(path: Path, groups: Mapping[str, WordCounts]) -> None:
    """Write the words of each group; the caller must flush the file.

    Raises:
        OSError: the file system fails.
    """
    entries = [[name, len(words), len(words.data)] for name, words in groups.items()]
    head = msgspec.json.encode(entries)
    head += b" " * (-len(head) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(_MAGIC + len(head).to_bytes(8, "little") + head)
        for words in groups.values():
            file.write(np.ascontiguousarray(words.offsets, "<i8").data)
            file.write(np.ascontiguousarray(words.counts, "<i8").data)
            file.write(np.ascontiguousarray(words.data).data)
            file.write(b"\0" * (-len(words.data) % _ALIGNMENT))


def open_run(path: Path) -> dict[str, WordCounts]:
    """Return the words of each group as memory maps.

    Raises:
        VerificationError: the file is damaged.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(16)
        head = file.read(min(int.from_bytes(start[8:], "little"), size))
    try:
        entries = msgspec.json.decode(head, type=list[tuple[str, int, int]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    place = 16 + len(head)
    sizes = [8 * (2 * n + 1) + -(-num_bytes // 8) * 8 for _, n, num_bytes in entries]
    sound = all(n >= 0 and num_bytes >= 0 for _, n, num_bytes in entries)
    if start[:8] != _MAGIC or not sound or place + sum(sizes) != size:
        raise _damaged(path, "its header does not match its size")
    data = np.asarray(FileMap(path, size))  # keeps no descriptor open: there can be many runs
    groups = {}
    for (name, num_words, num_bytes), taken in zip(entries, sizes, strict=True):
        groups[name] = WordCounts(
            data=_part(data, np.uint8, place + 8 * (2 * num_words + 1), num_bytes),
            offsets=_part(data, np.int64, place, num_words + 1),
            counts=_part(data, np.int64, place + 8 * (num_words + 1), num_words),
        )
        if problem := check_words(groups[name]):
            raise _damaged(path, problem)
        place += taken
    return groups


def _part(data: UInt8Array, dtype: Any, place: int, length: int) -> npt.NDArray[Any]:
    """Return `length` items that start at byte `place`."""
    return data[place : place + length * np.dtype(dtype).itemsize].view(dtype)


def _damaged(path: Path, why: str) -> VerificationError:
    hint = "start again with --overwrite"
    return VerificationError(
        "a file of the counting job is damaged", where=str(path), why=why, hint=hint
    )


def check_words(words: WordCounts) -> str:
    """Return what is wrong with words from a file, which compiled code trusts; "" if nothing is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    data, offsets = np.ascontiguousarray(words.data), np.ascontiguousarray(words.offsets)
    counts = words.counts
    edges = offsets[:1].tolist(), offsets[-1:].tolist(), len(offsets)
    ascends = not (offsets[1:] <= offsets[:-1]).any()
    if edges != ([0], [len(data)], len(counts) + 1) or not ascends:
        return "its offsets do not ascend from 0 to the end of its words"
    lengths = np.diff(offsets)
    is_too_large = bool((counts > MAX_COUNT // lengths).any())
    if is_too_large or (counts < 1).any() or counts.astype(np.float64) @ lengths > MAX_COUNT:
        return "a count is below 1, or the occurrences of its words exceed 2^53 bytes"
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), len(counts), buffers).validate(full=True)
    except pa.ArrowInvalid:
        return "a word is not UTF-8"
    found = pa.Array.from_buffers(pa.large_binary(), len(counts), buffers)
    if len(counts) > 1 and not pc.all(pc.less(found[:-1], found[1:])).as_py():
        return "its words are not sorted by their bytes"
    return ""

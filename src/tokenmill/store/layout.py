"""Megatron's `.idx` layout, byte for byte; see docs/reference/format.md.

    0   9 bytes   4D 4D 49 44 49 44 58 00 00 ("MMIDIDX", two zero bytes)
    9   u64       version, 1
    17  u8        dtype code: 8 uint16, 4 int32
    18  u64       S, number of sequences; one per document here
    26  u64       D = S + 1
    34  i32[S]    tokens of each sequence
        i64[S]    byte offset of each sequence in the .bin
        i64[D]    0, 1, ..., S

All little-endian. Read by `megatron.core.datasets.indexed_dataset.IndexedDataset(prefix)`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.store.canonical import RESTORE

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
DTYPE_CODES: dict[np.dtype[np.integer], int] = {np.dtype("<u2"): 8, np.dtype("<i4"): 4}
MAX_DOCUMENT_TOKENS = 2**31 - 1
DOCUMENTS_AT_ONCE = 1 << 20


def token_dtype(largest_id: int) -> np.dtype[np.integer]:
    """Return the dtype of a shard's ids: uint16 if every id fits, else int32."""
    return np.dtype("<u2") if largest_id < 2**16 else np.dtype("<i4")


def pack_index(lengths: npt.NDArray[np.integer], dtype: np.dtype[np.integer]) -> bytes:
    """Return the bytes of a `.idx` for documents of `lengths` tokens, one sequence per document."""
    return b"".join(index_pieces(lengths, dtype))


def index_pieces(lengths: npt.NDArray[np.integer], dtype: np.dtype[np.integer]) -> Iterator[bytes]:
    """Yield the bytes of a `.idx` in pieces: it may have 100 million documents."""
    count = len(lengths)
    yield HEADER.pack(MAGIC, 1, DTYPE_CODES[dtype], count, count + 1)
    parts = [lengths[at : at + DOCUMENTS_AT_ONCE] for at in range(0, count, DOCUMENTS_AT_ONCE)]
    for part in parts:
        yield part.astype("<i4").tobytes()
    first = 0
    for part in parts:
        offsets = first + offsets_from_lengths(part) * dtype.itemsize
        yield offsets[:-1].astype("<i8").tobytes()
        first = int(offsets[-1])
    for at in range(0, count + 1, DOCUMENTS_AT_ONCE):
        yield np.arange(at, min(at + DOCUMENTS_AT_ONCE, count + 1), dtype="<i8").tobytes()


def unpack_index(data: bytes | memoryview, where: str) -> tuple[np.dtype[np.integer], Int64Array]:
    """Return the dtype and the document lengths (shape (n,), in tokens) of a `.idx`.

    Raises:
        VerificationError: the bytes are not an index that `pack_index` wrote.
    """
    dtype, count = _read_header(bytes(data[: HEADER.size]), len(data), where)
    start = HEADER.size
    lengths = np.frombuffer(data, "<i4", count, start).astype(np.int64)
    offsets = np.frombuffer(data, "<i8", count, start + 4 * count)
    documents = np.frombuffer(data, "<i8", count + 1, start + 12 * count)
    right = np.array_equal(offsets, offsets_from_lengths(lengths)[:-1] * dtype.itemsize)
    if not right or (lengths < 0).any() or not np.array_equal(documents, np.arange(count + 1)):
        raise contradiction(where)
    return dtype, lengths


def contradiction(where: str) -> VerificationError:
    """Return the error for an index with offsets that do not match its lengths."""
    return VerificationError(
        "a token index is inconsistent",
        where=where,
        why="its offsets do not match its lengths",
        hint=RESTORE,
    )


def read_index_header(path: Path) -> tuple[np.dtype[np.integer], int]:
    """Return the dtype of the tokens and the number of documents from the header of a `.idx`.

    Raises:
        VerificationError: the header is not valid or does not match the size of the file.
    """
    with open(path, "rb") as file:
        header = file.read(HEADER.size)
    return _read_header(header, path.stat().st_size, str(path))


def index_bytes(num_documents: int) -> int:
    """Return the size of a `.idx` in bytes."""
    return HEADER.size + 20 * num_documents + 8


def _read_header(data: bytes, num_bytes: int, where: str) -> tuple[np.dtype[np.integer], int]:
    """Return the dtype and the number of sequences of an index of `num_bytes` bytes."""
    problem = ""
    if len(data) < HEADER.size:
        problem = f"it has {len(data)} bytes; the header alone has {HEADER.size}"
    else:
        magic, version, code, num_sequences, num_indices = HEADER.unpack(data)
        dtypes = {code: dtype for dtype, code in DTYPE_CODES.items()}
        if magic != MAGIC or version != 1 or code not in dtypes:
            problem = f"magic {magic!r}, version {version}, dtype code {code}"
        elif num_indices != num_sequences + 1 or num_bytes != index_bytes(num_sequences):
            problem = f"{num_sequences} sequences do not fit its {num_bytes} bytes"
        else:
            return dtypes[code], num_sequences
    raise VerificationError("the file is not a token index", where=where, why=problem, hint=RESTORE)


PART_FOLDERS = {
    "bin": "tokens",
    "idx": "tokens",
    "xxh3": "tokens",
    "parquet": "documents",
    "jsonl": "rejected",
}
"""The folder of each part of a unit; other parts are intermediate files of a run."""


def part_name(key: str, part: str) -> str:
    """Return the name of a unit's file below the output: "tokens/00000003-000001.bin"."""
    return f"{PART_FOLDERS.get(part, 'work/shards')}/{key}.{part}"

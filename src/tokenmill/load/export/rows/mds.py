"""MosaicML's MDS: shards of rows that its StreamingDataset reads, and litdata, too.

    u32        number of rows, N
    u32[N+1]   where each row begins, and where the last one ends
    JSON       names, types and sizes of the columns
    rows       their columns in the order of names, without a header

litdata 0.2.76 itself reads only compressed shards without arrays of MDS. But its own chunks begin
alike, so `index.json` lists the shards a second time, as chunks whose columns are arrays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tokenmill.store.exports import MDS_NAMES
from tokenmill.store.files import write_pieces
from tokenmill.store.manifest import FileEntry

INDEX_NAME = "index.json"
FILE_BYTES = 64 << 20
"""Default of the largest size of a shard, which is MDSWriter's: training waits for whole shards."""
MOST_BYTES = (1 << 32) - 1
"""Offsets have 32 bits."""
LITDATA_DTYPES = {"int8": 0, "int32": 2, "uint16": 5}
"""Its numbers of dtypes."""


def row_dtype(dtypes: dict[str, str], row_length: int) -> np.dtype[np.void]:
    """The dtype of a row with these columns: arrays of shape (row_length,)."""
    names = sorted((MDS_NAMES.get(name, name), dtype) for name, dtype in dtypes.items())
    return np.dtype([(name, np.dtype(dtype).str, (row_length,)) for name, dtype in names])


def head(row: np.dtype[np.void], num_rows: int) -> bytes:
    """What a shard of rows begins with."""
    described = json.dumps(_described(row), sort_keys=True).encode()
    first = 4 + 4 * (num_rows + 1) + len(described)
    offsets = first + row.itemsize * np.arange(num_rows + 1)
    return np.append(num_rows, offsets).astype("<u4").tobytes() + described


def most_rows(dtypes: dict[str, str], row_length: int) -> int:
    """How many rows a shard can have."""
    return _rows_in(MOST_BYTES, row_dtype(dtypes, row_length))


def _rows_in(num_bytes: int, row: np.dtype[np.void]) -> int:
    """How many rows a shard of this size has at most."""
    return max(num_bytes - len(head(row, 0)), 0) // (row.itemsize + 4)


def index_of(dtypes: dict[str, str], files: Sequence[FileEntry]) -> bytes:
    """The content of `index.json` for shards, whose names have the length of their rows."""
    shards, chunks, formats = [], [], []
    for file in files:
        row = row_dtype(dtypes, int(file.name.split("-")[1]))
        described = _described(row)
        samples = _rows_in(file.bytes, row)
        raw = {"basename": file.name, "bytes": file.bytes, "hashes": {"xxh3_128": file.xxh3_128}}
        shards.append({**described, "raw_data": raw, "samples": samples, "zip_data": None})
        chunk = {"chunk_bytes": file.bytes, "chunk_size": samples, "dim": None}
        chunks.append({**chunk, "column_sizes": described["column_sizes"], "filename": file.name})
        formats = [f"no_header_numpy:{LITDATA_DTYPES[name]}" for name in _types(row)]
    names = sorted(MDS_NAMES.get(name, name) for name in dtypes)
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    tree = {"type": "builtins.dict", "context": json.dumps(names)}
    config = {
        "chunk_bytes": sum(file.bytes for file in files),
        "chunk_size": sum(int(str(chunk["chunk_size"])) for chunk in chunks),
        "compression": None,
        "data_format": formats,
        "data_spec": json.dumps([1, {**tree, "children_spec": [leaf] * len(names)}]),
        "encryption": None,
        "format": "mds",
        "item_loader": "PyTreeLoader",
    }
    index = {"shards": shards, "version": 2, "chunks": chunks, "config": config}
    return json.dumps(index, sort_keys=True).encode()


def _described(row: np.dtype[np.void]) -> dict[str, Any]:
    """What the JSON of a shard says of its rows."""
    names = row.names or ()
    return {
        "column_encodings": [
            f"ndarray:{dtype}:{row[name].shape[0]}"
            for name, dtype in zip(names, _types(row), strict=True)
        ],
        "column_names": list(names),
        "column_sizes": [row[name].itemsize for name in names],
        "compression": None,
        "format": "mds",
        "hashes": ["xxh3_128"],
        "size_limit": None,
        "version": 2,
    }


def _types(row: np.dtype[np.void]) -> list[str]:
    return [row[name].base.name for name in row.names or ()]


class MdsWriter:
    """A shard."""

    def __init__(self, stem: Path, num_rows: int) -> None:
        self._path, self._num_rows = stem.with_name(f"{stem.name}.mds"), num_rows
        self._file: BinaryIO | None = None

    def append(self, columns: dict[str, Any]) -> None:
        """Add rows."""
        dtypes = {name: str(values.dtype) for name, values in columns.items()}
        num_rows, row_length = next(iter(columns.values())).shape
        row = row_dtype(dtypes, row_length)
        if self._file is None:
            self._file = open(self._path, "wb")  # noqa: SIM115 - closed by discard()
            self._file.write(head(row, self._num_rows))
        rows = np.empty(num_rows, row)
        for name, values in columns.items():
            rows[MDS_NAMES.get(name, name)] = values
        write_pieces(self._file, rows)

    def finish(self) -> list[Path]:
        """Close the shard and return it."""
        self.discard()
        return [self._path]

    def discard(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def open_shard(path: Path, row: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Map the rows of a shard, shape (num_rows,).

    Raises:
        ValueError: it is no shard of such rows.
    """
    size = path.stat().st_size
    num_rows = _rows_in(size, row)
    first = head(row, num_rows)
    with path.open("rb") as file:
        if file.read(len(first)) != first or size != len(first) + num_rows * row.itemsize:
            raise ValueError("its columns, offsets and size are not those of its rows")
    return np.memmap(path, row, "r", len(first), (num_rows,))

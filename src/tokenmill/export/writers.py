"""One file of rows, in each of the formats; rows come some at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokenmill.arrow_arrays import number_array
from tokenmill.errors import StorageError, UserError
from tokenmill.export.columns import Columns
from tokenmill.store.datasets_folder import INFO_NAME, STATE_NAME, state_of
from tokenmill.store.documents_table import abandon

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 1024


class Writer(Protocol):
    """Writes a file, or some files, whose names begin alike."""

    @abstractmethod
    def append(self, columns: Columns) -> None:
        """Add rows."""

    @abstractmethod
    def finish(self) -> list[Path]:
        """Complete the files and return them."""

    def discard(self) -> None:
        """Close the files as they are; they are not wanted any more."""
        return


class NpyWriter(Writer):
    """One .npy file a column, to be opened with `np.load(path, mmap_mode="r")`."""

    def __init__(self, stem: Path, num_rows: int) -> None:
        self._stem, self._num_rows = stem, num_rows
        self._paths: list[Path] = []

    def append(self, columns: Columns) -> None:
        for name, values in columns.items():
            path = self._stem.with_name(f"{self._stem.name}.{name}.npy")
            with open(path, "ab") as file:
                if path not in self._paths:
                    self._paths.append(path)
                    shape = (self._num_rows, values.shape[1])
                    header = {"descr": values.dtype.str, "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(file, header)
                file.write(values.data)

    def finish(self) -> list[Path]:
        """The files are complete already."""
        return self._paths


def load_torch() -> ModuleType:
    """PyTorch.

    Raises:
        UserError: it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise UserError(
            ".pt files need PyTorch", why=str(error), hint="pip install 'tokenmill[torch]'"
        ) from error
    return torch


class TorchWriter(Writer):
    """A dictionary of tensors, to be opened with `torch.load(path, weights_only=True)`."""

    def __init__(self, stem: Path, num_rows: int) -> None:
        self._torch = load_torch()
        self._path, self._num_rows, self._done = stem.with_name(f"{stem.name}.pt"), num_rows, 0
        self._columns: Columns = {}

    def append(self, columns: Columns) -> None:
        count = 0
        for name, values in columns.items():
            count, row_length = values.shape
            if name not in self._columns:
                self._columns[name] = np.empty((self._num_rows, row_length), values.dtype)
            self._columns[name][self._done : self._done + count] = values
        self._done += count

    def finish(self) -> list[Path]:
        tensors = {name: self._torch.from_numpy(each) for name, each in self._columns.items()}
        try:
            self._torch.save(tensors, self._path)
        except RuntimeError as error:  # what torch makes of a failed write
            raise StorageError("cannot write", where=str(self._path), why=str(error)) from error
        return [self._path]


class ParquetWriter(Writer):
    """A Parquet file with a list column each."""

    def __init__(self, stem: Path) -> None:
        self._path = stem.with_name(f"{stem.name}.parquet")
        self._writer: Any = None

    def append(self, columns: Columns) -> None:
        import pyarrow.parquet as pq

        table = _table(columns)
        if self._writer is None:
            # Ids hardly repeat inside a page: dictionaries would cost time and save nothing.
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="zstd", use_dictionary=False
            )
        self._writer.write_table(table, row_group_size=GROUP_ROWS)

    def finish(self) -> list[Path]:
        self._writer.close()
        return [self._path]

    def discard(self) -> None:
        if self._writer is not None:
            abandon(self._writer)


class ArrowWriter(Writer):
    """An Arrow stream file, as `datasets` keeps its tables."""

    def __init__(self, stem: Path) -> None:
        self._path = stem.with_name(f"{stem.name}.arrow")
        self._writer: Any = None

    def append(self, columns: Columns) -> None:
        import pyarrow as pa

        table = _table(columns)
        if self._writer is None:
            self._sink = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_stream(self._sink, table.schema)
        self._writer.write_table(table, max_chunksize=GROUP_ROWS)

    def finish(self) -> list[Path]:
        self._writer.close()
        self._sink.close()
        return [self._path]


WRITERS: dict[str, Callable[[Path, int], Writer]] = {
    "npy": NpyWriter,
    "pt": TorchWriter,
    "parquet": lambda stem, num_rows: ParquetWriter(stem),
    "datasets": lambda stem, num_rows: ArrowWriter(stem),
}
"""Makes a writer of a path without its ending and the number of rows that it will get."""


def describe_for_datasets(folder: Path, names: list[str], fingerprint: str) -> list[Path]:
    """Two files that make a folder of Arrow files a `datasets.load_from_disk` folder."""
    contents = {STATE_NAME: state_of(names, fingerprint), INFO_NAME: b"{}"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def _table(columns: Columns) -> pa.Table:
    import pyarrow as pa

    arrays = {}
    for name, values in columns.items():
        num_rows, row_length = values.shape
        offsets = number_array(np.arange(num_rows + 1, dtype=np.int32) * np.int32(row_length))
        arrays[name] = pa.ListArray.from_arrays(offsets, number_array(values.reshape(-1)))
    return pa.table(arrays)

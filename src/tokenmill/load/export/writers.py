"""One file of rows, in each of the formats; rows come some at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokenmill.load.export.columns import Columns
from tokenmill.load.export.torch_file import TorchFile
from tokenmill.store.arrow_arrays import number_array
from tokenmill.store.datasets_folder import INFO_NAME, STATE_NAME, state_of
from tokenmill.store.documents_table import abandon
from tokenmill.store.files import ArrowSink, write_pieces

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
                write_pieces(file, values)

    def finish(self) -> list[Path]:
        """The files are complete already."""
        return self._paths


class TorchWriter(Writer):
    """A dictionary of tensors, to be opened with `torch.load(path, weights_only=True)`."""

    def __init__(self, stem: Path, num_rows: int) -> None:
        self._path, self._num_rows = stem.with_name(f"{stem.name}.pt"), num_rows
        self._file: TorchFile | None = None

    def append(self, columns: Columns) -> None:
        if self._file is None:
            self._file = TorchFile(self._path, self._num_rows, columns)
        self._file.append(columns)

    def finish(self) -> list[Path]:
        assert self._file is not None  # an output file has a row
        self._file.finish()
        return [self._path]

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()


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
            self._file = open(self._path, "wb")  # noqa: SIM115 - closed by finish() or discard()
            self._writer = pa.ipc.new_stream(ArrowSink(self._file), table.schema)
        self._writer.write_table(table, max_chunksize=GROUP_ROWS)

    def finish(self) -> list[Path]:
        self._writer.close()
        self._file.close()
        return [self._path]

    def discard(self) -> None:
        if self._writer is not None:
            self._file.close()


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

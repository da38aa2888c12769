"""One file of rows in each of the formats: the columns of rows, and what writes them."""

from __future__ import annotations

import errno
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import UNSET, UnsetType

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.kernels.rows import IGNORE_INDEX, TARGET
from tokenmill.load.export.rows import mds
from tokenmill.load.export.rows.layouts import LAYOUT_DTYPES, Columns, Lists, lay_out
from tokenmill.load.rows.reader import RowReader, Rows
from tokenmill.store.canonical import canonical_json
from tokenmill.store.dataset import Dataset
from tokenmill.store.documents_table import abandon, number_array
from tokenmill.store.exports import (
    DEFAULT_COLUMNS,
    INFO_NAME,
    LAYOUT_FORMATS,
    STATE_NAME,
    Column,
    ExportManifest,
    ExportOptions,
    Format,
    Layout,
    state_of,
)
from tokenmill.store.files import ArrowSink, write_pieces
from tokenmill.store.manifest import FileEntry
from tokenmill.store.stored_reference import open_reference

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 1024
ROWS_PER_FILE = 50_000
"""Default of `sequences_per_file`."""

_DTYPES = {
    "input_ids": "int32",
    "labels": "int32",
    "position_ids": "int32",
    "attention_mask": "int8",
}
_COMPACT = ("pt", "parquet")
"""Formats that store a token in the fewest bytes; those who map npy and `datasets` get int32."""
_LARGEST_UINT16 = (1 << 16) - 1


def settled(reader: RowReader, options: ExportOptions) -> tuple[ExportOptions, bool]:
    """Decide what the options leave open: format, columns, dtype of input_ids, rows per file.

    The second value tells whether the rows have no labels, and those who read them can compute
    them. To know that takes the tokenizer, which is opened at most once.
    """
    order = UNSET if options.order == "shuffled" else options.order
    chosen: dict[str, Any] = {"with_labels": UNSET, "order": order}
    chosen["sequences_per_file"] = options.sequences_per_file or ROWS_PER_FILE
    if options.layout is not UNSET:
        chosen["format"] = options.format or LAYOUT_FORMATS[options.layout][0]
        return msgspec.structs.replace(options, **chosen), False
    options = msgspec.structs.replace(options, format=options.format or "parquet")
    columns = default_columns(options) if options.columns is UNSET else options.columns
    if options.with_labels and "labels" not in columns:
        columns = (*columns, "labels")
    rest = tuple(name for name in columns if name != "labels")
    may_go = options.columns is UNSET and not options.with_labels and options.format in _COMPACT
    left_out = (
        ("labels" not in columns or may_go)
        and {"input_ids", "position_ids"} <= {*rest}
        and repeats_ids(reader, options)
    )
    columns = rest if left_out else columns
    dtype = options.dtype
    if dtype is UNSET and options.format in _COMPACT and "input_ids" in columns:
        largest = reader.dataset.manifest.tokenizer.largest_id
        dtype = "uint16" if largest <= _LARGEST_UINT16 else UNSET
    if dtype == "int32":
        dtype = UNSET
    return msgspec.structs.replace(options, **chosen, columns=columns, dtype=dtype), left_out


def default_columns(options: ExportOptions) -> tuple[Column, ...]:
    """The columns of a format: those who read MDS expect ids alone."""
    return ("input_ids",) if options.format == "mds" else DEFAULT_COLUMNS


def repeats_ids(reader: RowReader, options: ExportOptions) -> bool:
    """Whether labels are input_ids except at starts of segments and in padding at the end of a row.

    Padding must be known from the rows alone: a last segment that holds only the padding id. So no
    text may give that id: it must be that of a special token, which strings in texts do not become.
    """
    rows, policies = reader.plan.rows, reader.dataset.policies
    masks = policies.has_no_loss or (rows.overlap > 0 and not rows.overlap_in_loss)
    adds = rows.bos_at_cuts or rows.eos_at_cuts or rows.joins_ends or rows.segment_multiple > 1
    if options.labels != "aligned" or masks or adds or policies.control_tokens:
        return False
    if reader.pad_id in reader.dataset.manifest.tokenizer.prefix_ids:
        return False
    try:
        return reader.pad_id in open_reference(reader.dataset).special_tokens.values()
    except UserError:  # a Python object, which is not here
        return False


def dtypes_of(options: ExportOptions, row_length: int) -> dict[str, str]:
    """The dtype of each column of settled options, for rows of up to this length."""
    if options.layout is not UNSET:
        return LAYOUT_DTYPES[options.layout]
    columns = default_columns(options) if options.columns is UNSET else options.columns
    dtypes: dict[str, str] = {name: _DTYPES[name] for name in columns}
    if options.format == "pt":
        if "labels" in dtypes:
            dtypes["labels"] = "int64"  # cross-entropy in PyTorch needs int64 targets
        if "position_ids" in dtypes and row_length - 1 <= _LARGEST_UINT16:
            dtypes["position_ids"] = "uint16"
    if "input_ids" in dtypes and options.dtype is not UNSET:
        dtypes["input_ids"] = options.dtype
    return dtypes


def check_options(dataset: Dataset, options: ExportOptions) -> None:
    """Raise a UserError if PyTorch is missing, or if ids do not fit the requested dtype."""
    if options.format == "pt" and find_spec("torch") is None:
        hint = f"{install_command('torch')}, or choose another format"
        raise UserError("the format pt needs PyTorch", why="it is not installed", hint=hint)
    if options.dtype is UNSET:
        return
    if options.columns is not UNSET and "input_ids" not in options.columns:
        raise UserError(
            "--dtype is the dtype of input_ids",
            why=f"the columns are {', '.join(options.columns)}",
            hint="add input_ids to --columns, or leave out --dtype",
        )
    largest = dataset.manifest.tokenizer.largest_id
    if options.dtype == "uint16" and largest > _LARGEST_UINT16:
        raise UserError(
            "the ids do not fit uint16",
            where=dataset.location,
            why=f"the largest id of its tokenizer is {largest:,}, and uint16 ends at 65,535",
            hint="use --dtype int32, which takes four bytes per token",
        )


def empty_columns(dtypes: dict[str, str], num_rows: int, row_length: int) -> Columns:
    """Reusable buffers for rows: arrays of shape (num_rows, row_length)."""
    shape = (num_rows, row_length)
    return {name: np.empty(shape, dtype) for name, dtype in dtypes.items() if name in _FILL}


def columns_of(rows: Rows, room: Columns, layout: Layout | UnsetType = UNSET) -> dict[str, Any]:
    """Write the columns of rows into `room`; returns views of shape (len(rows.ids), row_length).

    Columns of a layout can also be `Lists`.
    """
    columns = {name: values[: len(rows.ids)] for name, values in room.items()}
    for name, values in columns.items():
        _FILL[name](rows, values)
    return columns if layout is UNSET else lay_out(layout, rows, columns)


def _fill_labels(rows: Rows, labels: npt.NDArray[Any]) -> None:
    np.copyto(labels, rows.labels, casting="unsafe")  # a uint32 id is below 2^31
    np.copyto(labels, IGNORE_INDEX, where=(rows.flags & TARGET) == 0)


def _fill_positions(rows: Rows, positions: npt.NDArray[Any]) -> None:
    segmentation = rows.segmentation
    segmentation.count_positions(positions, np.zeros(len(segmentation), np.int64))


_FILL: dict[str, Callable[[Rows, npt.NDArray[Any]], None]] = {
    "input_ids": lambda rows, ids: np.copyto(ids, rows.ids, casting="unsafe"),
    "labels": _fill_labels,
    "position_ids": _fill_positions,
    "attention_mask": lambda rows, mask: np.copyto(mask, rows.real, casting="unsafe"),
}
"""Functions that compute each column."""


def token_bytes(dtypes: dict[str, str]) -> int:
    """Bytes of one token in all columns."""
    return sum(np.dtype(dtype).itemsize for dtype in dtypes.values())


class Writer(Protocol):
    """Writes a file, or some files, whose names begin alike."""

    @abstractmethod
    def append(self, columns: dict[str, Any]) -> None:
        """Add rows: arrays of shape (num_rows, row_length); Parquet and Arrow also take `Lists`."""

    @abstractmethod
    def finish(self) -> list[Path]:
        """Complete the files and return them."""

    def discard(self) -> None:
        """Close the files as they are; they are not wanted any more."""
        return


def file_names(stem: str, format_: Format, columns: Iterable[str]) -> dict[str, str]:
    """The names of the files of a stem, by column; only npy files have one column each."""
    ending = {"datasets": "arrow"}.get(format_, format_)
    own = format_ == "npy"
    return {name: f"{stem}.{name}.{ending}" if own else f"{stem}.{ending}" for name in columns}


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
    """A dictionary of tensors, to be opened with `torch.load(path, weights_only=True)`.

    `torch.save` takes whole tensors, so the columns of the file are in memory until the end.
    """

    def __init__(self, stem: Path, num_rows: int) -> None:
        self._path, self._num_rows = stem.with_name(f"{stem.name}.pt"), num_rows
        self._columns: Columns = {}
        self._filled = 0

    def append(self, columns: Columns) -> None:
        stop = self._filled
        for name, values in columns.items():
            if name not in self._columns:
                shape = (self._num_rows, values.shape[1])
                self._columns[name] = np.empty(shape, values.dtype)
            stop = self._filled + len(values)
            self._columns[name][self._filled : stop] = values
        self._filled = stop

    def finish(self) -> list[Path]:
        import torch

        tensors = {name: torch.from_numpy(values) for name, values in self._columns.items()}
        try:
            torch.save(tensors, self._path)
        except RuntimeError as error:  # it hides the error of the file system
            raise OSError(errno.EIO, str(error), str(self._path)) from error
        return [self._path]


class ParquetWriter(Writer):
    """A Parquet file with a list column each."""

    def __init__(self, stem: Path) -> None:
        self._path = stem.with_name(f"{stem.name}.parquet")
        self._writer: Any = None

    def append(self, columns: dict[str, Any]) -> None:
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

    def append(self, columns: dict[str, Any]) -> None:
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
    "mds": mds.MdsWriter,
}
"""Makes a writer of a path without its ending and the number of rows that it will get."""


def descriptions(manifest: ExportManifest, files: Sequence[FileEntry]) -> dict[str, bytes]:
    """The files that describe those of rows to their readers, by name.

    `datasets.load_from_disk` and readers of MDS need some; other formats have none.
    """
    if manifest.options.format == "mds":
        return {mds.INDEX_NAME: mds.index_of(manifest.dtypes, files)}
    if manifest.options.format != "datasets":
        return {}
    names = [file.name for file in files]
    identity = canonical_json([manifest.plan_id, manifest.options])
    return {STATE_NAME: state_of(names, xxhash.xxh3_64_hexdigest(identity)), INFO_NAME: b"{}"}


def _table(columns: dict[str, Any]) -> pa.Table:
    import pyarrow as pa

    arrays = {}
    for name, column in columns.items():
        lists = column if isinstance(column, Lists) else Lists.of_rows(column)
        parts = number_array(lists.offsets), number_array(lists.values)
        arrays[name] = pa.ListArray.from_arrays(*parts)
    return pa.table(arrays)

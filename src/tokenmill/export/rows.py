"""The main path of exporting: a dataset and a plan in, files of rows in training order out.

Rows are in the order of the loader's permutation, epoch 0. They are assembled window by window,
reading the shards from front to back, and distributed to one partition for each output file; then
every output file is made from its partition. Shards and partitions are read and written from
front to back but for the rows inside one partition, which come from the page cache. Memory holds
some rows, two output files where the format is `pt`, and some tens of bytes a sequence.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import xxhash
from msgspec import Meta

from tokenmill.errors import OutputConflictError
from tokenmill.export.columns import (
    DEFAULT_COLUMNS,
    Column,
    Format,
    columns_of,
    dtype_of,
    token_bytes,
)
from tokenmill.export.partitions import RowPartitions
from tokenmill.export.writers import WRITERS, describe_for_datasets
from tokenmill.load.rows.reader import Labels, RowReader, plan_row_lengths
from tokenmill.load.steps.order import banded, sequence_keys, shuffled, steps_of
from tokenmill.paths import local_path
from tokenmill.records import Advance, Int64Array
from tokenmill.store.canonical import canonical_json, write_sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import file_digest
from tokenmill.store.files import (
    fsync_path,
    remove_folder,
    rename_flushed,
    storage_errors,
    temporary_folder,
)
from tokenmill.store.manifest import FileEntry
from tokenmill.store.plan import Plan

LOGGER = logging.getLogger(__name__)
EXPORT_NAME = "export.json"
FILE_BYTES = 512 << 20
"""Most bytes of one output file's columns in memory."""
FILES_AT_ONCE = 2
CHUNK_TOKENS = 1 << 20


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rows are written, and how."""

    format: Annotated[
        Format, Meta(description="npy: memory maps; pt: torch tensors; parquet; datasets: Arrow")
    ] = "parquet"
    columns: Annotated[
        tuple[Column, ...],
        Meta(min_length=1, description="input_ids, labels, position_ids, attention_mask"),
    ] = DEFAULT_COLUMNS
    labels: Labels = "aligned"
    sequences_per_file: Annotated[
        int, Meta(ge=1, description="rows per file; fewer if they would take over 512 MiB")
    ] = 50_000
    max_sequences: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="stop after this many rows")
    ] = None
    seed: Annotated[int, Meta(ge=0, description="seed of the row order")] = 0
    order_by: Annotated[
        str | None,
        Meta(description="sort rows in bands: by length, depth or a column of documents"),
    ] = None
    bands: Annotated[
        int, Meta(ge=1, description="number of bands of --order-by; each is shuffled")
    ] = 100

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each column."""
        return {name: dtype_of(name, self.format) for name in self.columns}


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an export says of itself."""

    format: str = "tokenmill-rows"
    format_version: int = 1
    dataset_id: str
    plan_id: str
    options: ExportOptions
    dtypes: dict[str, str]
    pad_id: int
    num_sequences: int
    files: list[FileEntry]
    digest: str = ""


@dataclass(frozen=True, slots=True)
class _Series:
    """Rows of one length, in their order."""

    row_length: int
    order: Int64Array
    """Shape (num_rows,): the sequence of each row."""
    rows_per_file: int

    @property
    def rows_at_once(self) -> int:
        """Rows that are worked on together: few enough to stay in a processor's cache."""
        return max(1, CHUNK_TOKENS // self.row_length)


def export(
    dataset: Dataset,
    plan: Plan,
    out: str | Path,
    options: ExportOptions | None = None,
    *,
    advance: Advance = lambda stage, done, total: None,
) -> ExportManifest:
    """Write the rows of a plan into the folder `out`, which must not exist.

    Raises:
        UserError: the plan belongs to another dataset, or the format needs what is not installed.
        OutputConflictError: something stands at `out`.
        VerificationError: the plan does not fit the dataset.
    """
    options = options or ExportOptions()
    out = local_path(out, "the output folder")
    reader = RowReader(dataset, plan, options.labels)
    _warn_of_mask(reader, options)
    if out.exists() or out.is_symlink():
        raise OutputConflictError(
            "the output folder already exists",
            where=str(out),
            hint="choose another folder, or remove this one",
        )
    with storage_errors("write the rows", out), temporary_folder(out) as temporary:
        files: list[FileEntry] = []
        for each in _series(reader, options):
            partitions = RowPartitions(
                temporary / "partitions",
                each.row_length,
                reader.dtype,
                aligned=options.labels == "aligned",
            )
            _distribute(reader, each, partitions, advance)
            files += _write(each, partitions, temporary, options, advance)
        remove_folder(temporary / "partitions")
        manifest = _describe(reader, options, temporary, files)
        rename_flushed(temporary, out)
    return manifest


def _warn_of_mask(reader: RowReader, options: ExportOptions) -> None:
    """Warn if rows of several documents get an `attention_mask`."""
    if "attention_mask" in options.columns and reader.most_segments > 2:  # one may be padding
        LOGGER.warning(
            "rows get an attention_mask, and hold several documents: a model of transformers that "
            "is given both ignores position_ids, and documents attend to each other. Remove the "
            "column before training: remove_columns('attention_mask')"
        )


def _series(reader: RowReader, options: ExportOptions) -> list[_Series]:
    """The rows to write, by their length: files hold rows of one length."""
    order = shuffled(reader.plan, options.seed)
    if options.order_by is not None:
        keys = sequence_keys(reader.plan, options.order_by, reader.dataset)
        order = banded(order, keys, options.bands, steps_of(reader.plan))
    order = order[: options.max_sequences]
    lengths = plan_row_lengths(reader.plan)[order]
    return [
        _Series(
            row_length=length,
            order=order[lengths == length],
            rows_per_file=max(
                1,
                min(
                    options.sequences_per_file,
                    FILE_BYTES // (length * token_bytes(options.dtypes)),
                ),
            ),
        )
        for length in np.unique(lengths).tolist()
    ]


def _distribute(
    reader: RowReader, series: _Series, partitions: RowPartitions, advance: Advance
) -> None:
    """Assemble rows in the order of the corpus, each into the partition of its output file."""
    sequences = np.sort(series.order)
    places = np.empty(len(reader.plan), np.int64)
    places[series.order] = np.arange(len(series.order))
    with ThreadPoolExecutor(1, "partitions") as background:
        written: Future[None] | None = None
        for start in range(0, len(sequences), series.rows_at_once):
            chunk = sequences[start : start + series.rows_at_once]
            rows = reader.read(chunk, series.row_length)
            if written is not None:
                written.result()
            file_and_place = np.divmod(places[chunk], series.rows_per_file)
            written = background.submit(partitions.append, rows, *file_and_place)
            advance("assembling", start + len(chunk), len(sequences))
        if written is not None:
            written.result()


def _write(
    series: _Series, partitions: RowPartitions, out: Path, options: ExportOptions, advance: Advance
) -> list[FileEntry]:
    """Make every output file of its partition, some at once."""

    def write_file(first: int) -> list[FileEntry]:
        number = first // series.rows_per_file
        num_rows = min(series.rows_per_file, len(series.order) - first)
        writer = WRITERS[options.format](out / f"rows-{series.row_length}-{number:05d}", num_rows)
        try:
            for rows in partitions.take(number, series.rows_at_once):
                writer.append(columns_of(rows, options.dtypes))
            return [_flushed(path) for path in writer.finish()]
        except BaseException:
            writer.discard()
            raise

    files: list[FileEntry] = []
    firsts = range(0, len(series.order), series.rows_per_file)
    with ThreadPoolExecutor(FILES_AT_ONCE, "rows") as pool:
        try:
            for number, written in enumerate(pool.map(write_file, firsts)):
                files += written
                advance("writing", number + 1, len(firsts))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return files


def _describe(
    reader: RowReader, options: ExportOptions, out: Path, files: list[FileEntry]
) -> ExportManifest:
    plan_id = reader.plan.manifest.plan_id
    if options.format == "datasets":
        fingerprint = xxhash.xxh3_64_hexdigest(canonical_json([plan_id, options]))
        descriptions = describe_for_datasets(out, [file.name for file in files], fingerprint)
        files = files + [_flushed(path) for path in descriptions]
    manifest = ExportManifest(
        dataset_id=reader.dataset.manifest.dataset_id,
        plan_id=plan_id,
        options=options,
        dtypes=options.dtypes,
        pad_id=reader.pad_id,
        num_sequences=min(options.max_sequences or len(reader.plan), len(reader.plan)),
        files=files,
    )
    return write_sealed(out / EXPORT_NAME, manifest)


def _flushed(path: Path) -> FileEntry:
    """A file that is on the disk, with its digest, read back while it is in the page cache."""
    digest = file_digest(path)
    fsync_path(path)
    return FileEntry(name=path.name, bytes=path.stat().st_size, xxh3_128=digest)

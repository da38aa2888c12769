"""Export the rows of a plan as files, in training order.

By default, rows are in the order of the loader's permutation, epoch 0. They are assembled window by
window, reading the shards from front to back, and distributed to one partition for each output
file; then every output file is made from its partition. Shards and partitions are read and written
from front to back but for the rows inside one partition, which come from the page cache. Memory
holds some rows and some tens of bytes a sequence.

An export that was stopped continues: rows of finished files are not assembled again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from msgspec import UNSET

from tokenmill.core.paths import output_path
from tokenmill.core.records import Advance, Int64Array
from tokenmill.kernels.interpreted import expect_steps
from tokenmill.load.export.folder import (
    Begun,
    Unfinished,
    flushed,
    found_export,
    remove_unfinished,
    unfinished,
)
from tokenmill.load.export.rows import mds
from tokenmill.load.export.rows.layouts import check_layout, document_counts
from tokenmill.load.export.rows.partitions import RowPartitions
from tokenmill.load.export.rows.writers import (
    ROWS_PER_FILE,
    WRITERS,
    check_options,
    columns_of,
    descriptions,
    dtypes_of,
    empty_columns,
    settled,
    token_bytes,
)
from tokenmill.load.rows.reader import RowReader, plan_row_lengths
from tokenmill.load.steps.order import banded, sequence_keys, shuffled, steps_of
from tokenmill.store.canonical import write_sealed
from tokenmill.store.dataset import Dataset, place_of
from tokenmill.store.exports import EXPORT_NAME, LABELS_LEFT_OUT, ExportManifest, ExportOptions
from tokenmill.store.files import remove_folder, storage_errors, take_name
from tokenmill.store.manifest import FileEntry
from tokenmill.store.plan import Plan

LOGGER = logging.getLogger(__name__)
FILE_BYTES = 512 << 20
"""Limit of the columns of one output file in memory, unless a number of rows was asked for."""
FILES_AT_ONCE = 2
CHUNK_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export."""

    folder: Path
    manifest: ExportManifest
    already_there: bool
    files_kept: int
    """Number of files reused from an earlier attempt."""
    rows_per_file: dict[int, int]
    """Rows per file, by row length: fewer than asked for if a file would be too large."""


@dataclass(frozen=True, slots=True)
class Series:
    """Rows of one length, in training order."""

    row_length: int
    order: Int64Array
    """Shape (num_rows,): the sequence of each row."""
    rows_per_file: int

    @property
    def rows_at_once(self) -> int:
        """Rows processed together: few enough to stay in a processor's cache."""
        return max(1, CHUNK_TOKENS // self.row_length)

    @property
    def numbers(self) -> range:
        """The output files, counted from 0."""
        return range(-(-len(self.order) // self.rows_per_file))

    def stem(self, number: int) -> str:
        """The stem of the names of an output file."""
        return f"rows-{self.row_length}-{number:05d}"

    def rows_of(self, number: int) -> Int64Array:
        """The sequences of an output file, in order."""
        return self.order[number * self.rows_per_file :][: self.rows_per_file]


def export(
    dataset: Dataset,
    plan: Plan,
    out: str | Path,
    options: ExportOptions | None = None,
    *,
    overwrite: bool = False,
    advance: Advance = lambda stage, done, total: None,
) -> ExportReport:
    """Write the rows of a plan into the folder `out`. The same call resumes an interrupted export.

    `advance` is called with bytes.

    Raises:
        UserError: the plan belongs to another dataset, ids do not fit the dtype, or a path is not
            valid UTF-8.
        OutputConflictError: something else is at `out`; with `overwrite`, something that is not
            an export.
        VerificationError: the plan does not fit the dataset.
    """
    options = options or ExportOptions()
    out = output_path(out, "the output folder")
    places = [place_of(each.folder, dataset, out) for each in (dataset, plan)]
    reader, order, wanted = prepared(dataset, plan, options)
    is_limited = options.sequences_per_file is UNSET
    file_bytes = mds.FILE_BYTES if wanted.options.format == "mds" else FILE_BYTES
    series = series_of(reader, wanted, order, file_bytes if is_limited else None)
    rows_per_file = {each.row_length: each.rows_per_file for each in series}
    begun = Begun(manifest=wanted, rows_per_file={str(k): v for k, v in rows_per_file.items()})
    if found := found_export(out, wanted, overwrite=overwrite):
        remove_unfinished(out, begun)
        return ExportReport(out, found, True, 0, rows_per_file)
    _warn_of_mask(reader, wanted)
    doing = "write the rows"
    with storage_errors(doing, out), unfinished(out) as work, storage_errors(doing, out):
        advance = work.reporting(advance)
        work.begin(begun, overwrite=overwrite, advance=advance)
        kept = work.num_finished()
        work.require_space(_needed_bytes(series, reader, work, wanted))
        files = [file for each in series for file in _export(each, reader, work, wanted, advance)]
        placed = msgspec.structs.replace(wanted, dataset_place=places[0], plan_place=places[1])
        manifest = _finish(placed, work, files)
        take_name(work.rows, out)
    return ExportReport(out, manifest, False, kept, rows_per_file)


def prepared(
    dataset: Dataset, plan: Plan, options: ExportOptions
) -> tuple[RowReader, Int64Array, ExportManifest]:
    """Check an export; return its reader, its sequences in order, and its manifest without files.

    Raises:
        TokenmillError: as for `export`.
    """
    reader = RowReader(dataset, plan, options.labels)
    check_layout(options, plan)
    check_options(dataset, options)
    options, left_out = settled(reader, options)
    order = order_of(reader, options)
    return reader, order, describe(reader, options, order, left_out)


def _export(
    series: Series, reader: RowReader, work: Unfinished, wanted: ExportManifest, advance: Advance
) -> list[FileEntry]:
    """Write the files of all rows of one length, except those already finished."""
    left = _left(series, work)
    if left:
        expect_steps(sum(len(series.rows_of(number)) for number in left) * series.row_length)
        aligned = wanted.options.labels == "aligned"
        length, dtype = series.row_length, reader.dtype
        partitions = RowPartitions(work.partitions, length, dtype, aligned=aligned)
        _distribute(reader, series, left, partitions, advance)
        _write(series, left, partitions, work, wanted, advance)
        remove_folder(work.partitions)
    return [file for each in series.numbers for file in work.finished(series.stem(each)) or ()]


def _left(series: Series, work: Unfinished) -> list[int]:
    """The files of a series that are not finished."""
    return [number for number in series.numbers if work.finished(series.stem(number)) is None]


def _needed_bytes(
    all_series: list[Series], reader: RowReader, work: Unfinished, wanted: ExportManifest
) -> int:
    """Bytes needed at least: for the partitions of a series, or for all files.

    The size of compressed files, and of files without padding, is not known in advance.
    """
    rows = [sum(len(each.rows_of(n)) for n in _left(each, work)) for each in all_series]
    tokens = [n * each.row_length for n, each in zip(rows, all_series, strict=True)]
    aligned, options = wanted.options.labels == "aligned", wanted.options
    partitions = max(tokens, default=0) * (reader.dtype.itemsize * (2 - aligned) + 1)  # and flags
    known = options.format != "parquet" and options.layout is UNSET
    return max(partitions, sum(tokens) * token_bytes(wanted.dtypes) * known)


def _warn_of_mask(reader: RowReader, wanted: ExportManifest) -> None:
    """Warn if rows of several documents get an `attention_mask`."""
    keeps_apart = wanted.options.layout is not UNSET
    several = reader.most_segments > 2  # one may be padding
    if "attention_mask" in wanted.dtypes and several and not keeps_apart:
        LOGGER.warning(
            "rows get an attention_mask, and hold several documents: a model of transformers that "
            "is given both ignores position_ids, and documents attend to each other. Remove the "
            "column before training: remove_columns('attention_mask')"
        )


def series_of(
    reader: RowReader, wanted: ExportManifest, order: Int64Array, file_bytes: int | None
) -> list[Series]:
    """Group the rows to write by length: each file holds rows of one length."""
    options, in_token = wanted.options, token_bytes(wanted.dtypes)
    lengths = plan_row_lengths(reader.plan)[order]
    made = []
    for length in np.unique(lengths).tolist():
        per_file = min(options.sequences_per_file or ROWS_PER_FILE, 1 << 40)
        if file_bytes is not None:
            per_file = min(per_file, file_bytes // (length * in_token))
        if options.format == "mds":
            per_file = min(per_file, mds.most_rows(wanted.dtypes, length))
        made.append(Series(length, order[lengths == length], max(per_file, 1)))
    return made


def order_of(reader: RowReader, options: ExportOptions) -> Int64Array:
    """The sequences to export, in order."""
    order = _order_without_bands(reader.plan, options)
    if options.order_by is not None:
        keys = sequence_keys(reader.plan, options.order_by, reader.dataset)
        order = banded(order, keys, options.bands, steps_of(reader.plan))
    return order[: options.max_sequences]


def _order_without_bands(plan: Plan, options: ExportOptions) -> Int64Array:
    if options.order == "plan":
        return np.arange(len(plan))
    if options.order == "corpus":
        plan.check_offsets()
        first = plan.offsets[:-1]
        return np.lexsort((plan.starts[first], plan.documents[first]))
    return shuffled(plan, options.seed)


def _distribute(
    reader: RowReader,
    series: Series,
    numbers: list[int],
    partitions: RowPartitions,
    advance: Advance,
) -> None:
    """Assemble rows in corpus order, each into the partition of its output file."""
    sequences = np.sort(np.concatenate([series.rows_of(number) for number in numbers]))
    places = np.empty(len(reader.plan), np.int64)
    places[series.order] = np.arange(len(series.order))
    row_bytes = series.row_length * partitions.token_bytes
    with ThreadPoolExecutor(1, "partitions") as background:
        written: Future[None] | None = None
        for start in range(0, len(sequences), series.rows_at_once):
            chunk = sequences[start : start + series.rows_at_once]
            rows = reader.read(chunk, series.row_length)
            if written is not None:
                written.result()
            file_and_place = np.divmod(places[chunk], series.rows_per_file)
            written = background.submit(partitions.append, rows, *file_and_place)
            advance("assembling", (start + len(chunk)) * row_bytes, len(sequences) * row_bytes)
        if written is not None:
            written.result()


def _write(
    series: Series,
    numbers: list[int],
    partitions: RowPartitions,
    work: Unfinished,
    wanted: ExportManifest,
    advance: Advance,
) -> None:
    """Write each output file from its partition, several at a time."""
    dtypes, layout = wanted.dtypes, wanted.options.layout
    make_writer = WRITERS[wanted.options.format or "parquet"]
    total = sum(len(series.rows_of(number)) for number in numbers)
    written = _counted(advance, total, series.row_length * token_bytes(dtypes))

    def write_file(number: int) -> None:
        """Write one output file and forget its partition."""
        stem = series.stem(number)
        writer = make_writer(work.rows / stem, len(series.rows_of(number)))
        room = empty_columns(dtypes, series.rows_at_once, series.row_length)
        try:
            for rows in partitions.take(number, series.rows_at_once):
                writer.append(columns_of(rows, room, layout))
                written(len(rows.ids))
            work.finish(stem, [flushed(path) for path in writer.finish()])
        except BaseException:
            with contextlib.suppress(OSError):  # of a disk that refuses even what was held back
                writer.discard()
            raise
        partitions.forget(number)

    with ThreadPoolExecutor(FILES_AT_ONCE, "rows") as pool:
        try:
            list(pool.map(write_file, numbers))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _counted(advance: Advance, num_rows: int, row_bytes: int) -> Callable[[int], None]:
    """Return a function that threads call with the number of rows written."""
    lock, done = threading.Lock(), 0

    def count(rows: int) -> None:
        nonlocal done
        with lock:
            done += rows
            advance("writing", done * row_bytes, num_rows * row_bytes)

    return count


def describe(
    reader: RowReader, options: ExportOptions, order: Int64Array, left_out: bool
) -> ExportManifest:
    """The manifest of an export without files."""
    by_document = options.layout == "documents"
    return ExportManifest(
        dataset_id=reader.dataset.manifest.dataset_id,
        plan_id=reader.plan.manifest.plan_id,
        options=options,
        dtypes=dtypes_of(options, reader.plan.rows.length),
        left_out={"labels": LABELS_LEFT_OUT} if left_out else UNSET,
        pad_id=reader.pad_id,
        num_sequences=len(order),
        num_rows=int(document_counts(reader.plan, order).sum()) if by_document else UNSET,
        files=[],
    )


def _finish(wanted: ExportManifest, work: Unfinished, files: list[FileEntry]) -> ExportManifest:
    """Finish the folder of the rows: write its manifest and move it to the output."""
    for name, content in descriptions(wanted, files).items():
        (work.rows / name).write_bytes(content)
        files = [*files, flushed(work.rows / name)]
    manifest = msgspec.structs.replace(wanted, files=files)
    return write_sealed(work.rows / EXPORT_NAME, manifest)

"""Compares exported rows with what dataset and plan say.

Memory holds one piece of a file, and what it should be: it does not grow with the export.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
from msgspec import UNSET

from tokenmill.core.errors import TokenmillError
from tokenmill.kernels.interpreted import expect_steps
from tokenmill.load.export.rows import exporting as rows
from tokenmill.load.export.rows.layouts import Lists, check_layout, document_counts
from tokenmill.load.export.rows.writers import (
    check_options,
    columns_of,
    descriptions,
    empty_columns,
    file_names,
    repeats_ids,
    token_bytes,
)
from tokenmill.load.export.verifying.comparing import Comparison, damaged_export, differs
from tokenmill.load.export.verifying.readers import READERS
from tokenmill.load.rows.reader import RowReader, Rows
from tokenmill.store.exports import ExportManifest
from tokenmill.store.plan import Plan


def compare_rows(checked: Comparison, manifest: ExportManifest, plan: Plan) -> None:
    """Compare all rows of an export.

    Raises:
        VerificationError: one differs, or the manifest does not describe rows of this plan.
    """
    options, folder = manifest.options, checked.folder
    check_layout(options, plan)
    check_options(checked.dataset, options)
    reader = RowReader(checked.dataset, plan, options.labels)
    left_out = manifest.left_out is not UNSET and repeats_ids(reader, options)
    order = rows.order_of(reader, options)
    wanted = rows.describe(reader, options, order, left_out)
    checked.require(wanted, [])
    all_series = rows.series_of(reader, wanted, order, None)
    tokens = sum(len(each.order) * each.row_length for each in all_series)
    expect_steps(int(tokens * checked.sample))
    checked.token_bytes = tokens * token_bytes(wanted.dtypes)
    names: list[str] = []
    for series in all_series:
        expected, row = _Expected(reader, series, wanted), 0
        for number in count():
            files = file_names(series.stem(number), expected.format, list(wanted.dtypes))
            names += dict.fromkeys(files.values())
            paths = {name: folder / file for name, file in files.items()}
            row += _compare_file(checked, paths, expected, row)
            if row == expected.num_rows:
                break
    contents = descriptions(wanted, [file for file in manifest.files if file.name in {*names}])
    checked.require(wanted, [*names, *contents])
    for name, content in contents.items():
        if (folder / name).read_bytes() != content:
            raise damaged_export("a file differs", folder / name, "it names other files")


class _Expected:
    """The rows of one length that dataset and plan say, by their numbers."""

    def __init__(self, reader: RowReader, series: rows.Series, wanted: ExportManifest) -> None:
        self._reader, self.series, self.wanted = reader, series, wanted
        self.format = wanted.options.format or "parquet"
        counts = np.ones(len(series.order), np.int64)
        if wanted.options.layout == "documents":
            counts = document_counts(reader.plan, series.order)
        self._stops = np.cumsum(counts)
        """The row after those of each sequence."""
        self.num_rows = int(self._stops[-1])

    def place(self, row: int) -> int:
        """The place of the sequence that a row is of: the number of those complete before it."""
        return int(np.searchsorted(self._stops, row, side="right"))

    def read(self, first: int, stop: int) -> dict[str, Lists]:
        """The columns of rows [first, stop); sequences are read in the order of the dataset."""
        begin, end = self.place(first), self.place(stop - 1) + 1
        sequences, length = self.series.order[begin:end], self.series.row_length
        order = np.argsort(sequences)
        found, back = self._reader.read(sequences[order], length), np.argsort(order)
        ids = found.ids[back]
        labels = ids if found.labels is found.ids else found.labels[back]
        made = Rows(ids, labels, found.flags[back], found.aligned)
        room = empty_columns(self.wanted.dtypes, len(sequences), length)
        columns = columns_of(made, room, self.wanted.options.layout)
        skipped = first - (int(self._stops[begin - 1]) if begin else 0)
        lists = {
            name: each if isinstance(each, Lists) else Lists.of_rows(each)
            for name, each in columns.items()
        }
        part = (skipped, skipped + stop - first)
        return {name: each.part(*part) for name, each in lists.items()}


def _compare_file(
    checked: Comparison, paths: dict[str, Path], expected: _Expected, first: int
) -> int:
    """Compare the rows of a file, from row `first` of their length on; returns how many."""
    row, path, series = first, next(iter(paths.values())), expected.series
    dtypes = expected.wanted.dtypes
    try:
        for piece in READERS[expected.format](paths, dtypes, series.row_length):
            stop = row + piece.num_rows
            if stop > expected.num_rows:
                raise damaged_export("a file has too many rows", path, "the plan has no more")
            complete = expected.place(stop) - expected.place(row)
            num_bytes = complete * series.row_length * token_bytes(dtypes)
            if checked.takes(num_bytes, first=row == first):
                columns = expected.read(row, stop)
                _compare_piece(paths, piece.read(), columns, expected, (row, first))
                checked.rows += piece.num_rows
                checked.tokens += len(next(iter(columns.values())).values)
            row = stop
    except TokenmillError:
        raise
    except Exception as error:  # of a library, about a file that it has not written
        why = f"{type(error).__name__}: {error}"
        raise damaged_export("a file of the export cannot be read", path, why) from error
    if row == first:
        raise damaged_export("a file of the export has no rows", path, "each file has some")
    return row - first


def _compare_piece(
    paths: dict[str, Path],
    found: dict[str, Lists],
    expected: dict[str, Lists],
    source: _Expected,
    numbers: tuple[int, int],
) -> None:
    """Compare rows, given the number of the first one, and that of the first of its file."""
    if list(found) != list(expected):
        why = f"its columns are {', '.join(found)}, not {', '.join(expected)}"
        raise damaged_export("a file has other columns", next(iter(paths.values())), why)
    for name, right in expected.items():
        dtypes = found[name].values.dtype, right.values.dtype
        if dtypes[0] != dtypes[1]:
            why = f"{name} is {dtypes[0]}, not {dtypes[1]}"
            raise damaged_export("a column has another type", paths[name], why)
        if difference := _difference(found[name], right):
            row, what, *values = difference
            number = numbers[0] + row
            sequence = source.series.order[source.place(number)]
            known = f"row {number - numbers[1]:,} (sequence {sequence:,} of the plan), {name}"
            raise differs(paths[name], f"{known}, {what}", *values)


def _difference(found: Lists, expected: Lists) -> tuple[int, str, int, int] | None:
    """The first row that differs, what differs, and the values; None if all are equal."""
    lengths, wanted = np.diff(found.offsets), np.diff(expected.offsets)
    if not np.array_equal(lengths, wanted):
        row = int((lengths != wanted).argmax())
        return row, "number of tokens", int(lengths[row]), int(wanted[row])
    if np.array_equal(found.values, expected.values):
        return None
    at = int((found.values != expected.values).argmax())
    row = int(np.searchsorted(expected.offsets, at, side="right")) - 1
    values = int(found.values[at]), int(expected.values[at])
    return row, f"token {at - int(expected.offsets[row]):,}", *values

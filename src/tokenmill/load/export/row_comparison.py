"""Compares exported rows with what dataset and plan say.

Memory holds one piece of a file, and what it should be: it does not grow with the export.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
from msgspec import UNSET

from tokenmill.core.errors import TokenmillError
from tokenmill.load.export import rows
from tokenmill.load.export.comparing import (
    Checked,
    Share,
    damaged_export,
    differs,
    require_described,
    require_names,
)
from tokenmill.load.export.layouts import Lists, check_layout, document_counts
from tokenmill.load.export.readers import READERS
from tokenmill.load.export.writers import (
    check_options,
    columns_of,
    descriptions,
    empty_columns,
    file_names,
    repeats_ids,
    token_bytes,
)
from tokenmill.load.rows.reader import RowReader, Rows
from tokenmill.store.exports import ExportManifest
from tokenmill.store.plan import Plan


def compare_rows(checked: Checked, manifest: ExportManifest, plan: Plan, share: Share) -> None:
    """Compare all rows of an export.

    Raises:
        VerificationError: one differs, or the manifest does not describe rows of this plan.
    """
    options, dataset, folder = manifest.options, checked.dataset, checked.folder
    check_layout(options, plan)
    check_options(dataset, options)
    reader = RowReader(dataset, plan, options.labels)
    left_out = manifest.left_out is not UNSET and repeats_ids(reader, options)
    order = rows.order_of(reader, options)
    wanted = rows.describe(reader, options, order, left_out)
    require_described(folder, manifest, wanted)
    all_series = rows.series_of(reader, wanted, order, None)
    in_token, format_ = token_bytes(wanted.dtypes), options.format or "parquet"
    share.total = sum(len(each.order) * each.row_length for each in all_series) * in_token
    names = iter([entry.name for entry in manifest.files])
    for series in all_series:
        expected, row = _Expected(reader, series, wanted), 0
        for number in count():
            files = file_names(series.stem(number), format_, list(wanted.dtypes))
            require_names(folder, files.values(), names)
            paths = {name: folder / file for name, file in files.items()}
            row += _compare_file(checked, paths, expected, row, share)
            if row == expected.num_rows:
                break
    of_rows = [entry for entry in manifest.files if not entry.name.endswith(".json")]
    contents = descriptions(wanted, of_rows)
    for name, content in contents.items():
        require_names(folder, [name], names)
        if (folder / name).read_bytes() != content:
            raise damaged_export("a file differs", folder / name, "it names other files")
    require_names(folder, [], names)


class _Expected:
    """The rows of one length that dataset and plan say, by their numbers."""

    def __init__(self, reader: RowReader, series: rows.Series, wanted: ExportManifest) -> None:
        self._reader, self._series, self._wanted = reader, series, wanted
        counts = np.ones(len(series.order), np.int64)
        if wanted.options.layout == "documents":
            counts = document_counts(reader.plan, series.order)
        self._stops = np.cumsum(counts)
        """The row after those of each sequence."""
        self.num_rows = int(self._stops[-1])
        self._sequence_bytes = series.row_length * token_bytes(wanted.dtypes)

    @property
    def format(self) -> str:
        """The format of the rows."""
        return self._wanted.options.format or "parquet"

    def sequence(self, row: int) -> int:
        """The sequence of the plan that a row is of."""
        return int(self._series.order[np.searchsorted(self._stops, row, side="right")])

    def bytes_before(self, row: int) -> int:
        """Bytes of the sequences that are complete before a row."""
        return int(np.searchsorted(self._stops, row, side="right")) * self._sequence_bytes

    def read(self, first: int, stop: int) -> dict[str, Lists]:
        """The columns of rows [first, stop); sequences are read in the order of the dataset."""
        begin = int(np.searchsorted(self._stops, first, side="right"))
        end = int(np.searchsorted(self._stops, stop, side="left")) + 1
        sequences, length = self._series.order[begin:end], self._series.row_length
        order = np.argsort(sequences)
        found, back = self._reader.read(sequences[order], length), np.argsort(order)
        ids = found.ids[back]
        labels = ids if found.labels is found.ids else found.labels[back]
        made = Rows(ids, labels, found.flags[back], found.aligned)
        room = empty_columns(self._wanted.dtypes, len(sequences), length)
        columns = columns_of(made, room, self._wanted.options.layout)
        skipped = first - (int(self._stops[begin - 1]) if begin else 0)
        return {
            name: (each if isinstance(each, Lists) else Lists.of_rows(each)).part(
                skipped, skipped + stop - first
            )
            for name, each in columns.items()
        }


def _compare_file(
    checked: Checked, paths: dict[str, Path], expected: _Expected, first: int, share: Share
) -> int:
    """Compare the rows of a file, from row `first` of their length on; returns how many."""
    row, path = first, next(iter(paths.values()))
    try:
        for piece in READERS[expected.format](paths):
            stop = row + piece.num_rows
            if stop > expected.num_rows:
                raise damaged_export("a file has too many rows", path, "the plan has no more")
            num_bytes = expected.bytes_before(stop) - expected.bytes_before(row)
            if share.takes(num_bytes, first=row == first):
                columns = expected.read(row, stop)
                _compare_piece(paths, piece.read(), columns, (row, row - first), expected)
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
    numbers: tuple[int, int],
    source: _Expected,
) -> None:
    """Compare rows, of which the first has these numbers among all and in its file."""
    if list(found) != list(expected):
        why = f"its columns are {', '.join(found)}, not {', '.join(expected)}"
        raise damaged_export("a file has other columns", next(iter(paths.values())), why)
    for name, right in expected.items():
        there = found[name]
        if there.values.dtype != right.values.dtype:
            why = f"{name} is {there.values.dtype}, not {right.values.dtype}"
            raise damaged_export("a column has another type", paths[name], why)
        lengths, right_lengths = np.diff(there.offsets), np.diff(right.offsets)
        if not np.array_equal(lengths, right_lengths):
            row = int((lengths != right_lengths).argmax())
            place, pair = None, [lengths[row], right_lengths[row]]
        elif not np.array_equal(there.values, right.values):
            at = int((there.values != right.values).argmax())
            row = int(np.searchsorted(right.offsets, at, side="right")) - 1
            place, pair = at - int(right.offsets[row]), [there.values[at], right.values[at]]
        else:
            continue
        sequence = source.sequence(numbers[0] + row)
        what = f"row {numbers[1] + row:,} (sequence {sequence:,} of the plan), {name}"
        raise differs(paths[name], what, place, *pair)

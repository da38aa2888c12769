"""Rows that were assembled, on disk until their output file is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array
from tokenmill.load.rows.reader import Rows
from tokenmill.store.files import write_pieces


class RowPartitions:
    """One partition per output file, with its rows in corpus order and their places in the file.

    Labels that are aligned are the ids themselves, and are not stored again.
    """

    def __init__(
        self, folder: Path, row_length: int, dtype: np.dtype[np.integer], *, aligned: bool
    ) -> None:
        self._folder, self._row_length, self._aligned = folder, row_length, aligned
        self._dtypes = {"places": np.dtype(np.uint32), "ids": dtype, "flags": np.dtype(np.uint8)}
        if not aligned:
            self._dtypes["labels"] = dtype
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in a partition."""
        return sum(dtype.itemsize for name, dtype in self._dtypes.items() if name != "places")

    def append(self, rows: Rows, files: Int64Array, places: Int64Array) -> None:
        """Add rows; row i belongs at `places[i]` of output file `files[i]`."""
        order = np.argsort(files, kind="stable")
        numbers, firsts = np.unique(files[order], return_index=True)
        for number, chosen in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True):
            values: dict[str, npt.NDArray[np.integer]] = {
                "places": places.astype(np.uint32),
                "ids": rows.ids,
                "flags": rows.flags,
                "labels": rows.labels,
            }
            for name in self._dtypes:
                with open(self._path(number, name), "ab") as file:
                    write_pieces(file, values[name][chosen])

    def take(self, number: int, rows_at_once: int) -> Iterator[Rows]:
        """Yield the rows of one output file in order, some at a time."""
        stored = {
            name: np.memmap(self._path(number, name), dtype, mode="r")
            for name, dtype in self._dtypes.items()
        }
        order = np.argsort(stored.pop("places"))
        shaped = {name: values.reshape(-1, self._row_length) for name, values in stored.items()}
        for start in range(0, len(order), rows_at_once):
            chosen = order[start : start + rows_at_once]
            ids = shaped["ids"][chosen]
            labels = ids if self._aligned else shaped["labels"][chosen]
            yield Rows(ids, labels, shaped["flags"][chosen], aligned=self._aligned)

    def forget(self, number: int) -> None:
        """Remove the partition of an output file."""
        for name in self._dtypes:
            self._path(number, name).unlink()

    def _path(self, number: int, name: str) -> Path:
        return self._folder / f"{number:05d}.{name}"

"""A folder of rows that `datasets.load_from_disk` opens. Rows are written there directly.

    out/dataset_dict.json                 of a DatasetDict
    out/train/rows-0123456789abcdef.arrow
    out/train/state.json, dataset_info.json

The name of a file holds the fingerprint of its rows, so a later run knows its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.core.errors import OutputConflictError
from tokenmill.core.paths import local_path
from tokenmill.store.datasets_folder import INFO_NAME, STATE_NAME, state_of
from tokenmill.store.files import unfinished_beside, write_atomically

SPLITS = "dataset_dict.json"
DESCRIPTIONS = (STATE_NAME, INFO_NAME)
"""Describes the rows of a split."""


class RowsFolder:
    """A folder chosen by the user, in which the rows of a dataset become files."""

    def __init__(self, out: str | Path, *, overwrite: bool) -> None:
        self._out = local_path(out, "out")
        self._overwrite = overwrite
        self._splits: list[str] = []

    def path(self, split: str | None, name: str) -> Path:
        """Return the file for the rows with the fingerprint `name`.

        Raises:
            OutputConflictError: the folder holds something else.
        """
        folder = self._out if split is None else self._out / split
        if split is not None:
            self._splits.append(split)
        path = folder / f"rows-{name}.arrow"
        others = list(_others(folder, path))
        if split is not None and (self._out / STATE_NAME).exists():
            others.append(self._out / STATE_NAME)
        others = [] if self._overwrite else others
        if others:
            raise OutputConflictError(
                "the folder is not empty",
                where=str(folder),
                why=f"it holds {others[0].name}, which belongs to another dataset or configuration",
                hint="choose another folder, or replace its content with --overwrite (force=True)",
            )
        return path

    def finish(self, path: Path, name: str, features: Any, split: str | None) -> None:
        """Write the description of a split, and remove the rows it replaces."""
        for other in _others(path.parent, path):
            if other.name.startswith(("rows-", ".rows-")):
                shutil.rmtree(other) if other.is_dir() else other.unlink()
        info = {"features": features.to_dict()}
        write_atomically(path.parent / INFO_NAME, msgspec.json.encode(info))
        write_atomically(path.parent / STATE_NAME, state_of([path.name], name, split))

    def close(self) -> None:
        """Write the list of splits, and remove the rows they replace."""
        before = self._out / SPLITS
        if self._overwrite and self._splits:
            _remove_rows(self._out)
        elif self._overwrite and before.exists():
            listed = _splits_of(before)
            before.unlink()
            for folder in [found for found in self._out.iterdir() if found.name in listed]:
                _remove_rows(folder)
        if self._splits:
            splits = msgspec.json.encode({"splits": self._splits})
            write_atomically(before, splits)


def _splits_of(path: Path) -> list[str]:
    """The splits listed in a file; none if it is damaged."""
    try:
        found: list[str] = msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])[
            "splits"
        ]
    except (msgspec.DecodeError, KeyError):
        return []
    return found


def _remove_rows(folder: Path) -> None:
    """Remove the rows of a split, and its folder if that is empty afterwards."""
    for rows in folder.glob("rows-*.arrow"):
        rows.unlink()
        for name in DESCRIPTIONS:
            (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _others(folder: Path, path: Path) -> Iterator[Path]:
    """The files in a folder other than the rows in `path` and their description."""
    own = {path, unfinished_beside(path)}
    for found in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_left = found.name.startswith(f".{path.name}.") and found.name.endswith(".tmp")
        if found not in own and found.name not in DESCRIPTIONS and not is_left:
            yield found

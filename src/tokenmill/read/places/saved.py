"""Folders that `datasets.save_to_disk` has written: their Arrow files, in their own order.

A data set is its Arrow files and `state.json`, which names them; a folder with `dataset_dict.json`
holds one such folder for each split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tokenmill.errors import DataError, UserError
from tokenmill.paths import is_safe_path

STATE_NAME = "state.json"
INFO_NAME = "dataset_info.json"
SPLITS_NAME = "dataset_dict.json"
MAX_STATE_BYTES = 1 << 26

T = TypeVar("T", bound=msgspec.Struct)


class _DataFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    files: list[_DataFile] = msgspec.field(name="_data_files")
    indices: Any = msgspec.field(default=None, name="_indices_data_files")
    old_indices: Any = msgspec.field(default=None, name="_indices_files")


class _Splits(msgspec.Struct):
    splits: list[str]


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`, with one split or with several."""
    one = (folder / STATE_NAME).is_file() and (folder / INFO_NAME).is_file()
    return one or (folder / SPLITS_NAME).is_file()


def is_description(path: Path) -> bool:
    """Whether a file says what a saved data set is made of, and holds no rows."""
    return path.name in (STATE_NAME, INFO_NAME, SPLITS_NAME) and is_saved(path.parent)


def saved_files(folder: Path) -> list[Path]:
    """The Arrow files of a saved data set, in the order of its rows.

    Raises:
        UserError: it has several splits, or is not complete.
        DataError: its state is damaged, or names a file elsewhere.
    """
    if (folder / SPLITS_NAME).is_file():
        splits = _read(folder / SPLITS_NAME, _Splits).splits
        if not splits:
            raise UserError("a saved data set has no splits", where=str(folder))
        if len(splits) > 1:
            raise UserError(
                "a saved data set has several splits",
                where=str(folder),
                why=f"they are {', '.join(splits)}",
                hint=f"name the folder of one of them: {folder / splits[0]}",
            )
        folder = _member(folder, splits[0], SPLITS_NAME)
    state = _read(folder / STATE_NAME, _State)
    if state.indices or state.old_indices:
        why = "its rows have another order than its files"
        hint = "save it again, after flatten_indices()"
        raise UserError("a saved data set has an index", where=str(folder), why=why, hint=hint)
    paths = [_member(folder, file.filename, STATE_NAME) for file in state.files]
    if not paths:
        raise UserError("a saved data set is empty", where=str(folder))
    if missing := [path for path in paths if not path.is_file()]:
        why = f"{STATE_NAME} names {missing[0].name}"
        raise UserError("a saved data set is not complete", where=str(folder), why=why)
    return paths


def _member(folder: Path, name: str, named_in: str) -> Path:
    if "/" in name or not is_safe_path(name):
        why = f"{named_in} names {name!r}"
        raise DataError("a saved data set points outside its folder", where=str(folder), why=why)
    return folder / name


def _read(path: Path, kind: type[T]) -> T:
    try:
        if path.stat().st_size > MAX_STATE_BYTES:
            raise ValueError(f"it has over {MAX_STATE_BYTES} bytes")
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise DataError("a saved data set is damaged", where=str(path), why=str(error)) from error

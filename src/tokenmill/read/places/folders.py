"""Folders that `datasets.save_to_disk` wrote.

A saved dataset consists of Arrow files and `state.json`, which names them in row order. A folder
with `dataset_dict.json` contains one such folder for each split.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec

from tokenmill.core.errors import DataError, TokenmillError, UserError
from tokenmill.core.paths import is_safe_path

STATE_NAME = "state.json"
INFO_NAME = "dataset_info.json"
SPLITS_NAME = "dataset_dict.json"
DESCRIPTIONS = (STATE_NAME, INFO_NAME, SPLITS_NAME)
MAX_STATE_BYTES = 1 << 26

T = TypeVar("T", bound=msgspec.Struct)
P = TypeVar("P", bound=PurePath)


class _DataFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    files: list[_DataFile] = msgspec.field(name="_data_files")
    indices: Any = msgspec.field(default=None, name="_indices_data_files")
    old_indices: Any = msgspec.field(default=None, name="_indices_files")


class _Splits(msgspec.Struct):
    splits: list[str]


IsFile = Callable[[Any], bool]
Read = Callable[[Any], bytes]
"""Returns the bytes of a small file; raises an OSError, or a ValueError if it is too large."""


def _read_local(path: Path) -> bytes:
    require_small(path.stat().st_size)
    return path.read_bytes()


def require_small(num_bytes: int) -> None:
    """Raise a ValueError if a file is too large to describe a saved dataset."""
    if num_bytes > MAX_STATE_BYTES:
        raise ValueError(f"the file has over {MAX_STATE_BYTES} bytes")


def is_saved(folder: PurePath, is_file: IsFile = Path.is_file) -> bool:
    """Return whether `save_to_disk` wrote a folder, with one or several splits."""
    one = is_file(folder / STATE_NAME) and is_file(folder / INFO_NAME)
    return one or is_file(folder / SPLITS_NAME)


def only_describes(where: str, folder: str) -> UserError:
    """Return the error for an input that describes the saved dataset in a folder."""
    return UserError(
        "the file describes a saved dataset and contains no records",
        where=where,
        hint=f"name the folder: {folder}",
    )


def saved_files(folder: P, is_file: IsFile = Path.is_file, read: Read = _read_local) -> list[P]:
    """Return the Arrow files of a saved dataset, in row order.

    Raises:
        UserError: the dataset has several splits or is incomplete.
        DataError: its state is damaged, or names a file outside the folder.
    """
    if is_file(folder / SPLITS_NAME):
        splits = _decoded(folder / SPLITS_NAME, _Splits, read).splits
        if not splits:
            raise UserError("the saved dataset has no splits", where=str(folder))
        if len(splits) > 1:
            raise UserError(
                "the saved dataset has several splits",
                where=str(folder),
                why=f"the splits are {', '.join(splits)}",
                hint=f"name the folder of one of them: {folder / splits[0]}",
            )
        folder = _member(folder, splits[0], SPLITS_NAME)
    state = _decoded(folder / STATE_NAME, _State, read)
    if state.indices or state.old_indices:
        why = "the index reorders its rows"
        hint = "save it again after flatten_indices()"
        raise UserError("the saved dataset has an index", where=str(folder), why=why, hint=hint)
    paths = [_member(folder, file.filename, STATE_NAME) for file in state.files]
    if not paths:
        raise UserError("the saved dataset is empty", where=str(folder))
    if missing := [path for path in paths if not is_file(path)]:
        why = f"{STATE_NAME} names {missing[0].name}, which does not exist"
        raise UserError("the saved dataset is incomplete", where=str(folder), why=why)
    return paths


def _member(folder: P, name: str, named_in: str) -> P:
    if "/" in name or not is_safe_path(name):
        why = f"{named_in} names {name!r}"
        raise DataError("the saved dataset points outside its folder", where=str(folder), why=why)
    return folder / name


def _decoded(path: PurePath, kind: type[T], read: Read) -> T:
    try:
        return msgspec.json.decode(read(path), type=kind)
    except TokenmillError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise DataError("the saved dataset is damaged", where=str(path), why=str(error)) from error

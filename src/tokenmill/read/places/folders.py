"""Globs over names of remote files, and folders that `datasets.save_to_disk` wrote.

A saved dataset consists of Arrow files and `state.json`, which names them in row order. A folder
with `dataset_dict.json` contains one such folder for each split.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, Protocol, TypeVar

import msgspec

from tokenmill.core.errors import DataError, TokenmillError, UserError
from tokenmill.core.paths import is_safe_path

_MAGIC = re.compile(r"[*?\[]")


def is_glob(path: str) -> bool:
    """Return whether a path is a glob."""
    return bool(_MAGIC.search(path))


def fixed_folder(pattern: str) -> str:
    """Return the folder that contains all matches of a glob: "a/b" for "a/b/c*/d"."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if is_glob(part))
    return "/".join(parts[:first])


def matches(parts: Sequence[str], pattern: Sequence[str], *, hidden: bool = True) -> bool:
    """Return whether a path matches a shell glob: * stays in a folder, ** is any number of folders.

    Without `hidden`, a name that starts with a dot only matches a pattern that starts with a dot.
    """
    if not pattern:
        return not parts
    if pattern[0] == "**":
        if matches(parts, pattern[1:], hidden=hidden):
            return True
        passes = bool(parts) and (hidden or not parts[0].startswith("."))
        return passes and matches(parts[1:], pattern, hidden=hidden)
    if not parts or not fnmatch.fnmatchcase(parts[0], pattern[0]):
        return False
    shown = hidden or pattern[0].startswith(".") or not parts[0].startswith(".")
    return shown and matches(parts[1:], pattern[1:], hidden=hidden)


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


class Files(Protocol):
    """Access to the files of a saved dataset."""

    def is_file(self, path: Any, /) -> bool:
        """Return whether a file exists."""

    def read(self, path: Any, max_bytes: int, /) -> bytes:
        """Return the bytes of a small file.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is larger than `max_bytes`.
        """


class _Disk:
    """Files of this machine."""

    def is_file(self, path: Path) -> bool:
        return path.is_file()

    def read(self, path: Path, max_bytes: int) -> bytes:
        if path.stat().st_size > max_bytes:
            raise ValueError(f"the file has over {max_bytes} bytes")
        return path.read_bytes()


DISK = _Disk()


def is_saved(folder: PurePath, files: Files = DISK) -> bool:
    """Return whether `save_to_disk` wrote a folder, with one or several splits."""
    one = files.is_file(folder / STATE_NAME) and files.is_file(folder / INFO_NAME)
    return one or files.is_file(folder / SPLITS_NAME)


def is_description(path: Path) -> bool:
    """Return whether a file only describes a saved dataset, without rows."""
    return path.name in DESCRIPTIONS and is_saved(path.parent)


def saved_files(folder: P, files: Files = DISK) -> list[P]:
    """Return the Arrow files of a saved dataset, in row order.

    Raises:
        UserError: the dataset has several splits or is incomplete.
        DataError: its state is damaged, or names a file outside the folder.
    """
    if files.is_file(folder / SPLITS_NAME):
        splits = _read(folder / SPLITS_NAME, _Splits, files).splits
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
    state = _read(folder / STATE_NAME, _State, files)
    if state.indices or state.old_indices:
        why = "the index reorders its rows"
        hint = "save it again after flatten_indices()"
        raise UserError("the saved dataset has an index", where=str(folder), why=why, hint=hint)
    paths = [_member(folder, file.filename, STATE_NAME) for file in state.files]
    if not paths:
        raise UserError("the saved dataset is empty", where=str(folder))
    if missing := [path for path in paths if not files.is_file(path)]:
        why = f"{STATE_NAME} names {missing[0].name}, which does not exist"
        raise UserError("the saved dataset is incomplete", where=str(folder), why=why)
    return paths


def _member(folder: P, name: str, named_in: str) -> P:
    if "/" in name or not is_safe_path(name):
        why = f"{named_in} names {name!r}"
        raise DataError("the saved dataset points outside its folder", where=str(folder), why=why)
    return folder / name


def _read(path: PurePath, kind: type[T], files: Files) -> T:
    try:
        return msgspec.json.decode(files.read(path, MAX_STATE_BYTES), type=kind)
    except TokenmillError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise DataError("the saved dataset is damaged", where=str(path), why=str(error)) from error

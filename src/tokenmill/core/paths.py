"""Checks of the paths that users give: only files on this machine become paths."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from tokenmill.core.errors import StorageError, UserError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
_LIKELY_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::|(?<=..):/)")
"""An fsspec chain, or a URL that went through `Path`; existing files may have such names."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
"""Control characters, backslashes, and surrogates, which UTF-8 cannot encode."""
_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR)
_MISTAKES = (
    *_NO_SUCH_FILE, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL
)  # fmt: skip
"""Path errors that the user can fix; all others are storage failures."""


def local_path(name: str | Path, what: str) -> Path:
    """Return `name` as a path, which need not exist. `what` describes it in error messages.

    Raises:
        UserError: the name is a URL, or not a valid path.
        StorageError: the file system fails.
    """
    text = str(name)
    found = _URL.match(text) or (not os.path.lexists(text) and _LIKELY_URL.match(text))
    if found:
        raise UserError(
            f"{what} must be on this machine",
            where=redacted(text),
            why=f"paths that begin with {found[0]} are not supported",
            hint=_hint(found[0]),
        )
    path = Path(name)
    try:
        path.stat()
    except ValueError as error:  # the name contains a zero byte
        raise UserError(f"{what} is not a valid path", where=ascii(text), why=str(error)) from error
    except OSError as error:
        if error.errno not in _NO_SUCH_FILE:
            why = error.strerror or str(error)
            raise path_error(error)(f"cannot read {what}", where=text, why=why) from error
    return path


def output_path(name: str | Path, what: str) -> Path:
    """Return the path of a folder to be made like `local_path`, but "." and "x/.." get a name."""
    path = local_path(name, what)
    return Path(os.path.realpath(path)) if path.name in ("", "..") else path


def path_error(error: OSError) -> type[UserError | StorageError]:
    """Return UserError for mistakes in a path, StorageError for failures of the storage."""
    return UserError if error.errno in _MISTAKES else StorageError


def refuse_non_utf8(path: Path, what: str) -> None:
    """Raise a UserError for a path that is not UTF-8, because JSON files will contain it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        why, hint = "its path is not valid UTF-8", "rename it"
        raise UserError(f"cannot use {what}", where=ascii(path), why=why, hint=hint) from error


def is_safe_path(path: str) -> bool:
    """Return whether a relative path stays inside its folder and is a valid file name."""
    stays = not {"", ".", ".."} & set(path.split("/"))
    return stays and not _UNSAFE.search(path)


def read_bounded(path: Path, max_bytes: int, what: str) -> bytes:
    """Return all bytes of a regular file. Pipes and devices are refused without reading.

    Raises:
        UserError: the path is not a regular file, is larger than `max_bytes`, or cannot be read.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_regular, size = stat.S_ISREG(status.st_mode), status.st_size
            # `read` allocates all bytes that it is asked for, so do not ask for more than the size.
            data = file.read(size + 1) if is_regular and size <= max_bytes else b""
            if len(data) > size:  # files in /proc report size 0
                data += file.read(max_bytes + 1 - len(data))
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"cannot read {what}", where=str(path), why=why) from error
    if not is_regular:
        why = "it is a folder, a device, a pipe or a socket"
        raise UserError(f"{what} is not a regular file", where=str(path), why=why)
    if max(size, len(data)) > max_bytes:  # the reported size of a file in /proc is 0
        why = f"it has {max(size, len(data))} bytes; the limit is {max_bytes}"
        raise UserError(f"{what} is too large", where=str(path), why=why)
    return data


def redacted(name: str) -> str:
    """Return a URL without possible secrets: user and password, query, fragment.

    "https://me:secret@host/file?sig=1" becomes "https://***@host/file?***".
    """
    start, slashes, rest = re.split(r"(:/+|$)", name, maxsplit=1)
    before, at, after = rest.rpartition("@")
    if at and (":" in before or "/" not in before):
        rest = f"***@{after}"
    place, query, _ = re.split(r"([?#;]|$)", rest, maxsplit=1)
    return f"{start}{slashes}{place}{query}" + ("***" if query else "")


def _hint(beginning: str) -> str:
    scheme = beginning.rstrip(":/").lower()
    if scheme == "file":
        return "give the plain path, without file://"
    if scheme == "hf":
        return "give a local path; only inputs and rows of tokenmill export can be on the Hub"
    return "mount the storage and give its path, or copy the files to this machine first"

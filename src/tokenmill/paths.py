"""Names that users give to files and folders: only what lies on this machine becomes a path."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from tokenmill.errors import StorageError, UserError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
_LIKELY_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::|(?<=..):/)")
"""A chain of fsspec, or what `Path` makes of a URL. Files may be called so, too."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
"""Control characters, backslashes, and what UTF-8 cannot hold."""
_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR)
_MISTAKES = (
    *_NO_SUCH_FILE, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL
)  # fmt: skip
"""Errors of a path that the user can mend; all others are failures of the storage."""


def local_path(name: str | Path, what: str) -> Path:
    """The path that `name` means; there need not be a file. `what` is what the user names by it.

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
    except ValueError as error:  # a zero byte
        raise UserError(f"{what} is not a valid path", where=ascii(text), why=str(error)) from error
    except OSError as error:
        if error.errno not in _NO_SUCH_FILE:
            why = error.strerror or str(error)
            raise path_error(error)(f"cannot read {what}", where=text, why=why) from error
    return path


def path_error(error: OSError) -> type[UserError | StorageError]:
    """The kind of error that the user sees: a mistake of theirs, or a failure of the storage."""
    return UserError if error.errno in _MISTAKES else StorageError


def refuse_non_utf8(path: Path, what: str) -> None:
    """Raise a UserError for a path that is not UTF-8: files in JSON will name it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        why, hint = "its path is not valid UTF-8", "rename it"
        raise UserError(f"cannot use {what}", where=ascii(path), why=why, hint=hint) from error


def is_safe_path(path: str) -> bool:
    """Whether a path stays in the folder that it is meant for, and can be a file's name."""
    stays = not {"", ".", ".."} & set(path.split("/"))
    return stays and not _UNSAFE.search(path)


def read_bounded(path: Path, max_bytes: int, what: str) -> bytes:
    """All bytes of a regular file. A pipe or a device is never waited for, nor read.

    Raises:
        UserError: it is neither a regular file nor a small one, or cannot be read.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_regular, size = stat.S_ISREG(status.st_mode), status.st_size
            # `read` takes memory for all that it is asked for, so no more than there should be.
            data = file.read(size + 1) if is_regular and size <= max_bytes else b""
            if len(data) > size:  # as files of /proc are
                data += file.read(max_bytes + 1 - len(data))
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"cannot read {what}", where=str(path), why=why) from error
    if not is_regular:
        why = "it is a folder, a device, a pipe or a socket"
        raise UserError(f"{what} is not a regular file", where=str(path), why=why)
    if max(size, len(data)) > max_bytes:  # a file of /proc says nothing of its size
        why = f"it has {max(size, len(data))} bytes; the limit is {max_bytes}"
        raise UserError(f"{what} is too large", where=str(path), why=why)
    return data


def redacted(name: str) -> str:
    """A URL without what may be a secret: user and password, query, fragment.

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
        return "give a local path; only inputs of a build can be on the Hugging Face Hub"
    return "mount the storage and give its path, or copy the files to this machine first"

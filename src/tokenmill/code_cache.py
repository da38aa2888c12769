"""Keeps the machine code of this package's compiled functions for the next process.

A file of code is named after everything that it was compiled from. The file of a function and all
files of the package that it imports, directly or not, count as a whole: they have the constants,
the fields of tuples and the functions that numba compiles into it.
"""

from __future__ import annotations

import grp
import logging
import os
import pickle
import pwd
import re
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import llvmlite
import numba
import numpy as np
import xxhash
from numba.core import config, serialize
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult

LOGGER = logging.getLogger(__name__)
PACKAGE = Path(__file__).parent
VERSIONS = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
MODULE = re.compile(rb"\btokenmill((?:\.\w+)+)")
DIGEST_BYTES = 16
SECONDS_KEPT = 30 * 24 * 3600
"""Code that was not used for this long is deleted. It is usually that of an older version."""

_IMPORTED = time.time()
_NullCache: Any = NullCache
_CompileResult: Any = CompileResult
_dumps: Any = serialize.dumps
"""Without numba's type stubs, which leave their functions untyped."""


class CodeCache(_NullCache):  # type: ignore[misc]
    """The cache of one function, as numba's dispatchers use it.

    numba's own cache compares only the file that defines a function, keeps code in folders that
    others may write to, and can mix up signatures if two processes compile at once.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for a signature, or None if it has to be compiled."""
        target_context.refresh()
        # Code that is missing, damaged, or names what this version does not have.
        with suppress(Exception):
            path = self._path(sig, target_context.codegen())
            result = _CompileResult._rebuild(target_context, *_read(path))
            with suppress(OSError):
                os.utime(path)
            return result
        return None

    def save_overload(self, sig: Any, result: Any) -> None:
        """Keep code. If there is no space, or no permission, it is compiled next time."""
        if result.library.has_dynamic_globals:  # addresses of this process
            return
        with suppress(OSError):
            path = self._path(sig, result.codegen)
            code = _dumps(result._reduce())
            temporary = path.with_name(f"{uuid4().hex}.tmp")
            try:
                temporary.write_bytes(xxhash.xxh3_128_digest(code) + code)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            _delete_unused(path.parent)

    def _path(self, sig: Any, codegen: Any) -> Path:
        """Return where the code for a signature and this processor is kept.

        Raises:
            OSError: it cannot be kept.
        """
        function = self._function
        code = function.__code__
        place = function.__module__, function.__qualname__, code.co_firstlineno, code.co_code
        key = place, _sources(code.co_filename), _layout(sig), VERSIONS, codegen.magic_tuple()
        return (
            _folder() / f"{function.__name__}-{xxhash.xxh3_128_hexdigest(repr(key).encode())}.nbc"
        )


def _read(path: Path) -> Any:
    """Return what was kept in a file.

    Raises:
        ValueError: the file is damaged, or someone else may have written it.
    """
    with path.open("rb") as file:
        data = file.read()
        owner = os.fstat(file.fileno()).st_uid
    if (
        owner not in _trusted()
        or xxhash.xxh3_128_digest(data[DIGEST_BYTES:]) != data[:DIGEST_BYTES]
    ):
        raise ValueError(f"{path} is damaged")
    return pickle.loads(data[DIGEST_BYTES:])  # noqa: S301 - ours


def _layout(kind: Any) -> tuple[Any, ...]:
    """Return a type or signature with the fields of its tuples, which numba does not show."""
    parts = kind if isinstance(kind, tuple | numba.types.BaseTuple) else ()
    return repr(kind), getattr(kind, "fields", ()), [_layout(part) for part in parts]


@cache
def _sources(file: str) -> list[str]:
    """Return digests of a file of the package and of all files of it that it imports.

    Raises:
        FileNotFoundError: the file does not belong to the package, or the sources have changed
            since they were imported.
    """
    found, waiting = set(), {Path(file)}
    while waiting:
        found |= waiting
        waiting = set().union(*(_source(path)[1] for path in waiting)) - found
    return [_source(path)[0] for path in sorted(found)]


@cache
def _source(path: Path) -> tuple[str, set[Path]]:
    """Return the digest of a file, and the files of the modules that it names."""
    source = path.read_bytes()
    if not path.is_relative_to(PACKAGE) or path.stat().st_ctime > _IMPORTED:
        raise FileNotFoundError(f"{path} is not the source of a module that was imported")
    files: set[Path] = set()
    for name in set(MODULE.findall(source)):
        module = PACKAGE / name.decode()[1:].replace(".", "/")
        files.update(module.glob("*.py"))  # if it is a package
        files.add(module.with_suffix(".py"))
    return xxhash.xxh3_128_hexdigest(source), set(filter(Path.is_file, files))


def _folder() -> Path:
    """Return the folder of the code.

    Raises:
        PermissionError: there is none, which was logged.
    """
    folder = _private_folder(config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if folder is None:
        raise PermissionError("no folder is private")
    return folder


@cache
def _private_folder(parent: str) -> Path | None:
    """Make a folder that only this user can write to; if there is none, log why."""
    try:
        folder = Path(os.path.realpath(Path(parent).expanduser() / "tokenmill"))
        folder.mkdir(0o700, parents=True, exist_ok=True)
        unsafe = next((each for each in (folder, *folder.parents) if not _is_safe(each)), None)
        problem = unsafe and f"other users can change {unsafe}"
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        problem = str(error)
    if problem is None:
        return folder
    LOGGER.warning(
        "Compiled code is not kept, so that every process compiles again for some seconds: %s. "
        "Set NUMBA_CACHE_DIR to a folder that only you can write to.",
        problem,
    )
    return None


def _is_safe(folder: Path) -> bool:
    """Return whether other users can neither write to a folder nor replace what is in it."""
    found = folder.stat()
    others = stat.S_IWOTH if _is_own_group(found.st_gid) else stat.S_IWOTH | stat.S_IWGRP
    is_closed = not found.st_mode & others or bool(found.st_mode & stat.S_ISVTX)
    return is_closed and found.st_uid in _trusted()


def _trusted() -> set[int]:
    """Return this user and the administrators; in a container, `/` may not be owned by root."""
    return {0, os.geteuid(), Path("/").stat().st_uid}


def _is_own_group(number: int) -> bool:
    """Return whether a group is the one that many systems create for each user alone."""
    try:
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def _delete_unused(folder: Path) -> None:
    for path in folder.iterdir():
        with suppress(OSError):  # another process deletes it
            if time.time() - path.stat().st_mtime > SECONDS_KEPT:
                path.unlink()

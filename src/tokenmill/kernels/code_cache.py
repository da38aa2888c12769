"""Keeps the machine code of this package's compiled functions for the next process.

A file of code is named after everything that it was compiled from. The file of a function and all
files of the package that it imports, directly or not, count as a whole: they have the constants,
the fields of tuples and the functions that numba compiles into it.
"""

from __future__ import annotations

import logging
import os
import pickle
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
PACKAGE = Path(__file__).parents[1]
VERSIONS = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
MODULE = re.compile(rb"\btokenmill((?:\.\w+)+)")
DIGEST_BYTES = 16
SECONDS_KEPT = 30 * 24 * 3600
"""Code that was not used for this long is deleted. It is usually that of an older version."""

_IMPORTED = time.time()
_config: Any = config
_serialize: Any = serialize
_NullCache: Any = NullCache
_CompileResult: Any = CompileResult
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
        # It is missing, damaged, written by someone else, or cannot be rebuilt.
        with suppress(Exception):
            path = self._path(sig, target_context.codegen())
            data = path.read_bytes()
            digest, code = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
            if digest == xxhash.xxh3_128_digest(code) and path.stat().st_uid in _trusted():
                result = _CompileResult._rebuild(target_context, *pickle.loads(code))  # noqa: S301
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
            code = _serialize.dumps(result._reduce())
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
        function, code = self._function, self._function.__code__
        place = function.__module__, function.__qualname__, code.co_firstlineno, code.co_code
        key = place, _sources(code.co_filename), _layout(sig), VERSIONS, codegen.magic_tuple()
        folder = _folder()
        if folder is None:
            raise PermissionError("there is no private folder")
        return folder / f"{function.__name__}-{xxhash.xxh3_128_hexdigest(repr(key).encode())}.nbc"


def _layout(kind: Any) -> tuple[Any, ...]:
    """Return a type or tuple of types with the fields of named tuples, which `repr` leaves out."""
    parts: Any = kind if isinstance(kind, tuple | numba.types.BaseTuple) else ()
    return repr(kind), getattr(kind, "fields", ()), [_layout(part) for part in parts]


@cache
def _sources(file: str) -> list[str]:
    """Return digests of a file of the package and of all files of it that it imports.

    Raises:
        FileNotFoundError: the file does not belong to the package, or a file has changed since it
            was imported.
    """
    found, waiting = set(), {Path(file)}
    while waiting:
        found |= waiting
        waiting = set().union(*(_source(path)[1] for path in waiting)) - found
    return [_source(path)[0] for path in sorted(found)]


@cache
def _source(path: Path) -> tuple[str, set[Path]]:
    """Return the digest of a file, and the files of the modules and packages that it names."""
    source = path.read_bytes()
    if not path.is_relative_to(PACKAGE) or path.stat().st_ctime > _IMPORTED:
        raise FileNotFoundError(f"{path} is not the source of a module that was imported")
    files: set[Path] = set()
    for name in set(MODULE.findall(source)):
        module = PACKAGE / name.decode()[1:].replace(".", "/")
        files.update(module.glob("*.py"), filter(Path.is_file, [module.with_suffix(".py")]))
    return xxhash.xxh3_128_hexdigest(source), files


@cache
def _folder() -> Path | None:
    """Make a folder that only this user can write to; if that fails, log why, and return None."""
    try:
        parent = _config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        folder = Path(os.path.realpath(Path(parent).expanduser()), "tokenmill")
        folder.mkdir(0o700, parents=True, exist_ok=True)
        unsafe = [each for each in (folder, *folder.parents) if not _is_safe(each.stat())]
        if not unsafe:
            return folder
        problem = f"other users can change {unsafe[-1]}"
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        problem = str(error)
    LOGGER.warning(
        "Compiled code is not kept, so every process compiles again for some seconds: %s. "
        "Set NUMBA_CACHE_DIR to a folder that only you can change.",
        problem,
    )
    return None


def _is_safe(folder: os.stat_result) -> bool:
    """Return whether others can neither write to a folder nor replace what this user has in it."""
    # Many systems have a group for each user alone, with the user's number.
    is_own_group = folder.st_gid == os.getegid() == os.geteuid()
    others = stat.S_IWOTH if is_own_group else stat.S_IWOTH | stat.S_IWGRP
    is_closed = not folder.st_mode & others or bool(folder.st_mode & stat.S_ISVTX)
    return is_closed and folder.st_uid in _trusted()


def _trusted() -> set[int]:
    """Return this user and the administrator, who has another number inside some containers."""
    return {0, os.geteuid(), Path("/").stat().st_uid}


def _delete_unused(folder: Path) -> None:
    for path in folder.iterdir():
        with suppress(OSError):  # another process deletes it
            if time.time() - path.stat().st_mtime > SECONDS_KEPT:
                path.unlink()

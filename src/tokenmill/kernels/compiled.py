"""Decorators for functions that numba compiles on first use, and keeps on disk.

A compiled function takes numpy arrays and numbers and releases the GIL while it runs. If its result
decides what is written, it computes in integers: equal input gives equal output on any machine.

Code is kept by numba, in a folder for this state of all files of `tokenmill.kernels`. numba itself
compares only the file of a function, but compiles into it the constants, the functions and the
fields of tuples of other files. So compiled functions are kept only if they are in this package,
which imports nothing but `tokenmill.core`.
"""

from __future__ import annotations

import fcntl
import io
import logging
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, ParamSpec, TypeVar, cast

import llvmlite
import numba
import numpy as np
import xxhash
from numba.core import caching, config, event
from numba.core.registry import CPUDispatcher
from numba.core.runtime.nrt import rtsys

P = ParamSpec("P")
R = TypeVar("R")

LOGGER = logging.getLogger(__name__)
KERNELS = Path(__file__).parent
VERSIONS = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
SECONDS_KEPT = 30 * 24 * 3600
"""Code that was not used for this long is deleted. It is that of an older version."""
TURN_SECONDS, POLL_SECONDS = 60.0, 0.02
"""How long to wait for a process that compiles, which can hang, and how often to look."""

_IMPORTED = time.time()
_njit: Any = numba.njit
_caching: Any = caching
_config: Any = config
"""Without numba's type stubs, which lack some options and leave functions untyped."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call."""
    return _compiled(function, "never")


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Inline a small function into the compiled functions that call it.

    The function is compiled again for each call site. With two or more call sites, `inner` compiles
    faster.
    """
    return _compiled(function, "always")


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only compiled functions may call; a call from Python is a TypeError.

    It compiles in half the time: there is no code to convert Python objects, and the cache file of
    the caller contains it. It runs at the same speed, because LLVM inlines small functions.
    """
    made = _njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    made.__class__ = _Inner
    return cast("Callable[P, R]", made)


class _Inner(CPUDispatcher):
    """Refuses calls from Python, which would crash: there is no code for them."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        name = self.py_func.__qualname__
        raise TypeError(f"{name} can be called by compiled functions only; mark it as compiled")


def _compiled(function: Callable[P, R], inline: Literal["never", "always"]) -> Callable[P, R]:
    # These functions are never called from C, so no C wrapper is compiled.
    made = _njit(nogil=True, inline=inline, no_cfunc_wrapper=True)(function)
    if Path(function.__code__.co_filename).parent == KERNELS:
        made._cache = _Cache(function)
    return cast("Callable[P, R]", made)


class _Cache(_caching.NullCache):  # type: ignore[misc]
    """numba's cache of one function, made on the first call, and safe where numba's is not."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._turn: IO[str] = io.StringIO()
        """Open while this process may compile the function, and others wait."""

    @cached_property
    def _kept(self) -> Any:
        folder = _folder()
        if folder is None or _sources_changed():
            return _caching.NullCache()
        # numba reads the place when the cache is made, and offers no other way to say it.
        before, _config.CACHE_DIR = _config.CACHE_DIR, str(folder)
        try:
            kept = _caching.FunctionCache(self._function)
        finally:
            _config.CACHE_DIR = before
        # If numba cannot write there, it takes a place where it compares only one file.
        is_there = Path(kept.cache_path).is_relative_to(folder)
        return kept if is_there else _caching.NullCache()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for a signature, or None if it must be compiled.

        If another process is compiling the function, this waits for its code.
        """
        found = self._load(sig, target_context)
        if found is None:
            self._turn.close()  # an earlier compilation has failed
            with suppress(Exception):  # no locks, or no folder that numba can use
                if folder := self._kept.cache_path:
                    name = f"{self._function.__module__}.{self._function.__qualname__}.lock"
                    self._turn = _turn_of(Path(folder, name))
            found = self._load(sig, target_context)
        if found is not None:
            self._turn.close()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep code. If there is no space, or no permission, it is compiled next time."""
        if self._turn.closed:
            return
        with self._turn:
            try:
                self._save(sig, data)
            except OSError:
                with suppress(OSError):
                    Path(self._turn.name).unlink()  # tells those who wait

    def _save(self, sig: Any, data: Any) -> None:
        try:
            self._kept.save_overload(sig, data)
        except OSError:
            raise
        except Exception:  # numba's list of files is damaged
            self._kept.flush()
            self._kept.save_overload(sig, data)

    def _load(self, sig: Any, target_context: Any) -> Any:
        """Return the code for a signature, or None if it is missing or damaged.

        numba's own method first imports all that it can compile, which takes a tenth of a second.
        Code that is kept needs none of it, and whatever is compiled later imports it then.
        """
        with suppress(Exception):
            rtsys.initialize(target_context)  # allocates arrays
            return self._kept._load_overload(sig, target_context)
        return None


def _turn_of(path: Path) -> IO[str]:
    """Wait until no other process holds a lock; return its file, to close after the compilation.

    So workers do not all compile the same code. Also, numba numbers the files of a function: two
    processes that save code for different signatures at once would take the same number, and one
    of them would find the code of the other.

    The file is closed already if the wait was too long, or if the other process could not keep the
    code: then those who wait would only compile one after another.
    """
    file = open(path, "w")  # noqa: SIM115 - its caller closes it
    give_up_at = time.monotonic() + TURN_SECONDS
    while time.monotonic() < give_up_at:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_nlink:
                return file
            break
        time.sleep(POLL_SECONDS)
    file.close()
    return file


@cache
def _folder() -> Path | None:
    """Make a folder that only this user can write to; if that fails, log why, and return None."""
    try:
        parent = _config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        every = Path(os.path.realpath(Path(parent).expanduser()), "tokenmill")
        folder = every / _digest()
        every.mkdir(0o700, parents=True, exist_ok=True)
        folder.mkdir(0o700, exist_ok=True)
        unsafe = [each for each in (folder, *folder.parents) if not _is_safe(each.stat())]
        if not unsafe:
            os.utime(folder)
            _delete_unused(every)
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


def _digest() -> str:
    """Return a digest of what code is compiled from; numba adds the processor."""
    digest = xxhash.xxh3_128(repr(VERSIONS).encode())
    for path in sorted(KERNELS.glob("*.py")):
        digest.update(repr((path.name, path.read_bytes())).encode())
    return digest.hexdigest()


def _sources_changed() -> bool:
    """Whether a file has changed since this process began to import them."""
    return any(path.stat().st_ctime > _IMPORTED for path in KERNELS.glob("*.py"))


def _is_safe(folder: os.stat_result) -> bool:
    """Return whether others can neither write to a folder nor replace what this user has in it."""
    # Many systems have a group for each user alone, with the user's number.
    is_own_group = folder.st_gid == os.getegid() == os.geteuid()
    others = stat.S_IWOTH if is_own_group else stat.S_IWOTH | stat.S_IWGRP
    is_closed = not folder.st_mode & others or bool(folder.st_mode & stat.S_ISVTX)
    # The administrator has another number inside some containers.
    return is_closed and folder.st_uid in {0, os.geteuid(), Path("/").stat().st_uid}


def _delete_unused(every: Path) -> None:
    for path in every.iterdir():
        with suppress(OSError):  # another process deletes it
            if time.time() - path.stat().st_mtime > SECONDS_KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


class _FirstCompilation(event.Listener):
    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell, self._told = tell, False

    def on_start(self, _: Any) -> None:
        if not self._told:
            self._told = True
            self._tell()

    def on_end(self, _: Any) -> None:
        """Nothing is told of the end."""


@contextmanager
def telling_of_compilation(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once if anything has to be compiled; what is read from disk does not count."""
    with event.install_listener("numba:compile", _FirstCompilation(tell)):
        yield

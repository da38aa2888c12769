"""Where numba keeps compiled functions, made safe against kills, races and upgrades."""

from __future__ import annotations

import hashlib
import pickle
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numba.core import caching, extending, types
from numba.core.dispatcher import Dispatcher

_FunctionCache: Any = caching.FunctionCache
_IndexDataCacheFile: Any = caching.IndexDataCacheFile
_Intrinsic: Any = extending._Intrinsic
"""Without numba's type stubs, which leave their functions untyped."""

CONSTANTS = (bool, int, float, str, bytes, tuple, np.generic, types.Type)
"""Types of values that numba compiles into a function."""

DIGEST_BYTES = hashlib.sha256().digest_size
SECONDS_KEPT = 3600
"""Age at which code of an older version is deleted: by then, no process is about to read it."""


class SafeCache(_FunctionCache):  # type: ignore[misc]
    """Finds code by everything that it was compiled from.

    numba compares the file that defines a function, but not the functions and constants of other
    files that are compiled into it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep code. If there is no space, or no permission any more, it is compiled next time."""
        with suppress(OSError):
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), _digest(self._py_func))


class _CacheFile(_IndexDataCacheFile):  # type: ignore[misc]
    """Names a file of code after its key, and begins it with a digest. What differs is not used.

    numba numbers the files and lists them in an index. If a process is killed between the two, or
    if two processes compile at once, the index can refer to code of an older version, of another
    signature, or for another processor. If the machine stops, either can be empty.
    """

    def load(self, key: Any) -> Any:
        # What is read may also name a class that this version does not have.
        with suppress(Exception):
            return self._load_data(self._name(key))
        return None

    def save(self, key: Any, data: Any) -> None:
        self._save_data(self._name(key), data)
        self._delete_older_versions()

    def flush(self) -> None:
        """Keep everything: saving a file replaces it."""

    def _name(self, key: Any) -> str:
        return f"{self._stem}.{self._version_of_file}.{_short_digest(key, 32)}.nbc"

    @property
    def _stem(self) -> str:
        return str(self._index_name.removesuffix(".nbi"))

    @property
    def _version_of_file(self) -> str:
        return _short_digest((self._source_stamp, self._version), 8)

    def _delete_older_versions(self) -> None:
        """Delete code of this function, at any line, that other versions of its file left."""
        function, _, line_and_python = self._stem.rpartition("-")
        python = line_and_python.partition(".")[2]
        kept = re.compile(rf"{re.escape(function)}-\w+\.{re.escape(python)}\.(\w+)\..*")
        for path in Path(self._cache_path).iterdir():
            found = kept.fullmatch(path.name)
            if found and (found[1] != self._version_of_file or ".tmp." in path.name):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > SECONDS_KEPT:
                        path.unlink()

    def _dump(self, obj: Any) -> bytes:
        code = super()._dump(obj)
        return hashlib.sha256(code).digest() + bytes(code)

    def _load_data(self, name: str) -> Any:
        data = Path(self._data_path(name)).read_bytes()
        digest, code = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
        if hashlib.sha256(code).digest() != digest:
            raise ValueError(f"{name} is damaged")
        return pickle.loads(code)  # noqa: S301 - ours


def _short_digest(value: Any, digits: int) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:digits]


@cache
def _digest(function: Any) -> str:
    """Return a digest of a function, and of what it names or closes over."""
    digest = hashlib.sha256()
    codes = list(_codes(function.__code__))
    for code in codes:
        constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
        digest.update(repr((code.co_code, constants, code.co_names)).encode())
    names = sorted({name for code in codes for name in code.co_names})
    found = [function.__globals__.get(name) for name in names]
    modules = [each for each in found if isinstance(each, ModuleType)]
    found += [vars(module).get(name) for module in modules for name in names]
    found += [cell.cell_contents for cell in function.__closure__ or ()]
    for value in found:
        if isinstance(value, Dispatcher) and value.py_func is not function:
            digest.update(_digest(value.py_func).encode())
        elif isinstance(value, _Intrinsic):
            digest.update(_digest(value._defn).encode())
        elif isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        elif isinstance(value, CONSTANTS):
            digest.update(repr(value).encode())
    return digest.hexdigest()


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)

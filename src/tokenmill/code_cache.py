"""Where numba keeps compiled functions, made safe against kills, races and upgrades."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numba.core import caching, extending
from numba.core.dispatcher import Dispatcher

_FunctionCache: Any = caching.FunctionCache
_IndexDataCacheFile: Any = caching.IndexDataCacheFile
_Intrinsic: Any = extending._Intrinsic
"""Without numba's type stubs, which leave their functions untyped."""

CONSTANTS = (bool, int, float, str, bytes, tuple, np.generic)
"""Types of global values that numba compiles into a function."""


class SafeCache(_FunctionCache):  # type: ignore[misc]
    """Finds code by everything that it was compiled from.

    numba compares the file that defines a function, but not the functions and constants of other
    files that are compiled into it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, stamp)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), _digest(self._py_func))


class _CacheFile(_IndexDataCacheFile):  # type: ignore[misc]
    """Names a file of code after its key, and writes it before the index that refers to it.

    numba numbers the files and writes the index first. If the process is killed between the two, or
    if two processes compile at once, the index can refer to code of an older version, of another
    signature, or for another processor.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            return dict(super()._load_index())
        except (ImportError, AttributeError):  # an older version had types that are gone
            return {}

    def save(self, key: Any, data: Any) -> None:
        digest = hashlib.sha256(repr((self._source_stamp, key)).encode()).digest()
        name = self._data_name(int.from_bytes(digest[:8]))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})


@cache
def _digest(function: Any) -> str:
    """Return a digest of a function, and of the functions and constants that it names."""
    digest = hashlib.sha256()
    codes = list(_codes(function.__code__))
    for code in codes:
        constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
        digest.update(repr((code.co_code, constants, code.co_names)).encode())
    names = sorted({name for code in codes for name in code.co_names})
    found = [function.__globals__.get(name) for name in names]
    modules = [each for each in found if isinstance(each, ModuleType)]
    found += [vars(module).get(name) for module in modules for name in names]
    for value in found:
        if isinstance(value, Dispatcher) and value.py_func is not function:
            digest.update(_digest(value.py_func).encode())
        elif isinstance(value, _Intrinsic):
            digest.update(_digest(value._defn).encode())
        elif isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        elif isinstance(value, CONSTANTS):
            digest.update(repr(value).encode())
    for cell in function.__closure__ or ():
        digest.update(repr(cell.cell_contents).encode())
    return digest.hexdigest()


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)

"""Arrays that are used again once nobody holds them any more.

Fresh memory costs a page fault for each 4 KiB, which for a batch is as much work as filling it.
An array of the pool is free when the pool's own reference is the only one: views, tensors and
memory maps that share its memory each hold a reference to it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

ARRAYS_KEPT = 24
"""Enough for two batches and the one in the making."""


class Buffers:
    """A pool of arrays of some shapes and dtypes."""

    def __init__(self) -> None:
        self._kept: list[npt.NDArray[Any]] = []

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array with arbitrary values, as `np.empty` gives it."""
        wanted = np.dtype(dtype)
        for place in range(len(self._kept)):
            if _references(self._kept, place) == ALONE:
                array = self._kept[place]
                if array.shape == shape and array.dtype == wanted:
                    return array
        array = np.empty(shape, wanted)
        if REUSES and len(self._kept) < ARRAYS_KEPT:
            self._kept.append(array)
        elif REUSES:
            self._kept[:] = [*self._kept[1:], array]
        return array

    def __reduce__(self) -> tuple[type[Buffers], tuple[()]]:
        """Another process has its own."""
        return Buffers, ()


def _references(arrays: list[npt.NDArray[Any]], place: int) -> int:
    return sys.getrefcount(arrays[place])


ALONE = _references([np.empty(0)], 0)
"""What a list's own reference counts as: interpreters differ."""
REUSES = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Without the global lock, counts of references say less."""

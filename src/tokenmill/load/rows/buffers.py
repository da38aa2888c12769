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

ARRAYS_KEPT = 6
"""Of one shape and dtype: two or three of each batch, for two batches and the one in the making."""
SHAPES_KEPT = 16


class Buffers:
    """A pool of arrays of some shapes and dtypes."""

    def __init__(self) -> None:
        self._kept: dict[tuple[tuple[int, ...], str], list[npt.NDArray[Any]]] = {}

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array with arbitrary values, as `np.empty` gives it."""
        kind = shape, np.dtype(dtype).str
        if kind not in self._kept and len(self._kept) >= SHAPES_KEPT:
            self._kept.clear()
        kept = self._kept.setdefault(kind, [])
        for _ in range(len(kept)):
            try:
                array, references = _taken(kept)
            except IndexError:  # other threads are looking at all of them
                break
            kept.append(array)
            if references == ALONE:
                return array
        array = np.empty(*kind)
        if REUSES:
            kept.append(array)
            del kept[:-ARRAYS_KEPT]
        return array

    def __reduce__(self) -> tuple[type[Buffers], tuple[()]]:
        """Another process has its own."""
        return Buffers, ()


def _taken(arrays: list[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], int]:
    """The first array, taken out, and how many references there are to it.

    Out of the list, no other thread can be given it, and while one thread looks at an array,
    it is not alone for another.
    """
    array = arrays.pop(0)
    return array, sys.getrefcount(array)


ALONE = _taken([np.empty(0)])[1]
"""References to an array that nobody else holds, as `_taken` counts them."""
REUSES = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Without the global lock, counts of references say less."""

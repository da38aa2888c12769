"""Arrow arrays built directly from buffers of numbers, strings and bytes.

`pyarrow.array` and `pyarrow.scalar` import pandas, if it is installed, to check the type of their
argument. This costs half a second and 60 MB in every worker process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa


def number_array(values: npt.NDArray[np.number]) -> pa.Array:
    """Return numbers, shape (n,), as an Arrow array; contiguous ones are not copied."""
    import pyarrow as pa

    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, buffer])


def string_array(values: Sequence[str | None]) -> pa.Array:
    """Return strings and nulls, together at most 2 GiB of UTF-8, as an Arrow array.

    Raises:
        OverflowError: the strings are longer.
        UnicodeEncodeError: a string contains half of a surrogate pair.
    """
    import pyarrow as pa

    encoded = [b"" if value is None else value.encode() for value in values]
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(values)), out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{offsets[-1]} bytes of strings in one Arrow array")
    nulls = None
    if None in values:
        present = np.fromiter((value is not None for value in values), np.bool_, len(values))
        nulls = pa.py_buffer(np.packbits(present, bitorder="little"))
    content = [nulls, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), content)

"""Arrow arrays made of their buffers equal those of `pyarrow.array`."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.store.documents_table import number_array, string_array


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=5), max_size=20))
def test_strings_and_nulls_are_those_of_pyarrow(values: list[str | None]) -> None:
    array = string_array(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.string()))
    assert array.null_count == values.count(None)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16, np.uint32, np.float32])
def test_numbers_are_those_of_pyarrow(dtype: type[np.number]) -> None:
    values = np.arange(10, dtype=dtype)
    for part in (values, values[3:7], values[::3], values[:0]):
        array = number_array(part)
        array.validate(full=True)
        assert array.equals(pa.array(part))


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        string_array(["\ud800"])


def test_pandas_is_not_imported() -> None:
    script = """
import sys
import numpy as np
from tokenmill.store.documents_table import number_array, string_array
number_array(np.arange(3)), string_array(["a", None])
print("pandas" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert told.stdout.split() == [b"False"]

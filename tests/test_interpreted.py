"""Python runs the lines of compiled functions while there is little to do, with equal results."""

from __future__ import annotations

import numpy as np
import pytest

from tokenmill.kernels import interpreted
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import (
    MOST_STEPS,
    STEPS_OF_A_COMPILATION,
    expect_steps,
    for_first_steps,
    for_steps,
)
from tokenmill.kernels.memory import eight_bytes_at, mapped_array, trailing_zeros


@pytest.fixture(autouse=True)
def no_steps_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreted, "_steps_taken", {})
    monkeypatch.setattr(interpreted, "_steps_expected", 0)


@compiled
def total(values: np.ndarray) -> int:
    found = values[0]
    for value in values[1:]:
        found += value
    return found


def test_steps_of_all_calls_count_together() -> None:
    assert for_steps(total, MOST_STEPS) is not total
    assert for_steps(total, 1) is total
    assert for_first_steps(total, STEPS_OF_A_COMPILATION - MOST_STEPS - 1) is not total
    assert for_first_steps(total, 1) is total


def test_a_long_run_that_was_announced_starts_with_compiled_code() -> None:
    expect_steps(STEPS_OF_A_COMPILATION)
    assert for_first_steps(total, 1) is not total
    expect_steps(STEPS_OF_A_COMPILATION + 1)
    expect_steps(1)
    assert for_first_steps(total, 1) is total
    assert for_steps(total, 1) is not total  # the steps of a function that few calls may need


def test_a_sum_that_python_would_cut_to_32_bits_is_computed_by_compiled_code() -> None:
    values = np.array([2**31 - 1, 1], np.int32)
    assert for_steps(total, 1)(values) == 2**31


@compiled
def counted(pairs: tuple[np.ndarray, np.ndarray], most: np.ndarray) -> None:
    counts, sums = pairs
    for i in range(len(most)):
        counts[0] += 1
        sums[0] += most[i] + most[i]


def test_compiled_code_begins_anew_with_the_arguments_as_they_were() -> None:
    counts, sums = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for_steps(counted, 1)((counts, sums), np.array([1, 2**31 - 1], np.int32))
    assert (counts.tolist(), sums.tolist()) == ([2], [2**32])


@compiled
def read_memory(address: int, like: np.ndarray) -> tuple[np.uint64, int, np.ndarray]:
    bits = eight_bytes_at(address)
    return bits, trailing_zeros(bits), mapped_array(address + 8, 2, like)


def test_python_reads_memory_as_compiled_code_does() -> None:
    values = np.array([48, 5, 2**63 - 1], np.int64)
    address, like = values.ctypes.data, values[:0]
    by_python, by_code = (
        (int(bits), zeros, array.tolist())
        for bits, zeros, array in (
            for_steps(read_memory, 1)(address, like),
            read_memory(address, like),
        )
    )
    assert by_python == by_code == (48, 4, [5, 2**63 - 1])

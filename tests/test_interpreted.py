"""Python runs the lines of compiled functions until it is worth compiling them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tokenmill.kernels import interpreted
from tokenmill.kernels.compiled import compiled, eight_bytes_at, mapped_array, trailing_zeros
from tokenmill.kernels.interpreted import (
    MOST_STEPS,
    STEPS_MEANWHILE,
    for_steps,
    for_steps_until_compiled,
)


def total(values: np.ndarray) -> int:
    result = values[0]
    for i in range(1, len(values)):
        result += values[i]
    return result


def test_what_takes_few_steps_is_run_by_python() -> None:
    function = compiled(total)
    values = np.array([1, 2], np.int32)
    assert for_steps(function, 2)(values) == 3
    assert function.signatures == []
    assert for_steps(function, MOST_STEPS + 1)(values) == 3
    assert len(function.signatures) == 1


def test_steps_of_many_calls_count_together() -> None:
    function = compiled(total)
    for_steps(function, MOST_STEPS)
    assert for_steps(function, 1) is function


def test_a_sum_that_python_would_cut_to_32_bits_is_computed_by_compiled_code() -> None:
    assert for_steps(compiled(total), 2)(np.array([2**31 - 1, 1], np.int32)) == 2**31


def copied(values: np.ndarray, source: np.ndarray) -> None:
    values[0] = source[0]


def test_a_number_that_python_would_refuse_is_converted_by_compiled_code() -> None:
    values = np.zeros(1, np.int32)
    for_steps(compiled(copied), 1)(values, np.array([2**32 - 1], np.uint32))
    assert values.tolist() == [-1]


def counted(pairs: tuple[np.ndarray, np.ndarray], most: np.ndarray) -> None:
    counts, sums = pairs
    for i in range(len(most)):
        counts[0] += 1
        sums[0] += most[i] + most[i]


def test_compiled_code_begins_anew_with_the_arguments_as_they_were() -> None:
    counts, sums = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for_steps(compiled(counted), 1)((counts, sums), np.array([1, 2**31 - 1], np.int32))
    assert (counts.tolist(), sums.tolist()) == ([2], [2**32])


def test_python_runs_the_lines_until_a_thread_has_compiled_them() -> None:
    function = compiled(total)
    values = np.array([1, 2], np.int32)
    assert for_steps_until_compiled(function, 2)(values) == 3
    interpreted._compiling[function].join()
    assert len(function.signatures) == 1
    assert for_steps_until_compiled(function, 2) is function


def test_many_steps_wait_for_compiled_code() -> None:
    function = compiled(total)
    assert for_steps_until_compiled(function, STEPS_MEANWHILE + 1) is function


def test_what_cannot_be_compiled_is_reported_by_a_call() -> None:
    function = compiled(lambda values: values.unknown)
    with pytest.raises(AttributeError, match="unknown"):
        for_steps_until_compiled(function, 1)(np.array([1]))
    interpreted._compiling[function].join()
    with pytest.raises(Exception, match="Unknown attribute 'unknown'"):
        for_steps_until_compiled(function, 1)(np.array([1]))


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


WHILE_A_THREAD_COMPILES = """
import os, sys
import numpy as np
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import for_steps_until_compiled

def total(values):
    return np.sort(values)[0]

def product(values):
    return values[0] * values[1]

slow, quick = compiled(total), compiled(product)
for_steps_until_compiled(slow, 1)(np.array([3, 4]))
"""


def run_while_a_thread_compiles(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WHILE_A_THREAD_COMPILES + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_forked_child_can_compile() -> None:
    found = run_while_a_thread_compiles(
        """
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(int(quick(np.array([3, 4]))))
"""
    )
    assert (found.returncode, found.stdout, found.stderr) == (12, "", "")


def test_a_process_can_end() -> None:
    found = run_while_a_thread_compiles("print('done')")
    assert (found.returncode, found.stdout, found.stderr) == (0, "done\n", "")

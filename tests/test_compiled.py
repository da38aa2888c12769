"""Compiled functions compute what they say, with and without a place to be kept."""

from __future__ import annotations

import subprocess
import sys

import numba
import numba.core.caching
import numpy as np
import pytest

from tokenmill.kernels.compiled import compiled, inner, telling_of_compilation


def doubled(values: np.ndarray) -> np.ndarray:
    return 2 * values


def test_a_compiled_function_computes_what_it_says() -> None:
    assert compiled(doubled)(np.array([1, 2])).tolist() == [2, 4]


def test_an_inner_function_is_for_compiled_ones_and_refuses_python() -> None:
    twice = inner(doubled)
    assert compiled(lambda values: twice(values))(np.array([1, 2])).tolist() == [2, 4]
    with pytest.raises(TypeError, match="doubled can be called by compiled functions only"):
        twice(np.array([1, 2]))


def test_compilation_is_told_of_once() -> None:
    told: list[str] = []
    function = numba.njit(doubled)
    with telling_of_compilation(lambda: told.append("compiling")):
        function(np.array([1, 2]))
        function(np.array([1.0, 2.0]))
    with telling_of_compilation(lambda: told.append("compiling")):
        function(np.array([3, 4]))
    assert told == ["compiling"]


def test_where_nothing_can_be_kept_functions_are_compiled_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="no locator"):
        numba.njit(cache=True)(doubled)
    assert compiled(doubled)(np.array([1, 2])).tolist() == [2, 4]


def test_a_build_starts_its_first_worker_before_it_imports_what_takes_long() -> None:
    code = (
        "import sys, tokenmill.cli.build; "
        "print({'numpy', 'numba', 'pyarrow', 'asyncio', 'yaml'} & {*sys.modules})"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout == "set()\n"


def test_what_does_not_pack_does_not_load_the_compiler() -> None:
    code = (
        "import sys, tokenmill.cli.build, tokenmill.cli.display, tokenmill.run.pipeline, "
        "tokenmill.run.worker, tokenmill.report.verify; print('numba' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout == "False\n"

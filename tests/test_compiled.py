"""Compiled functions compute what they say, with and without a place to be kept."""

from __future__ import annotations

import subprocess
import sys

import numba.core.caching
import numpy as np
import pytest

from tokenmill.compiled import compiled


def doubled(values: np.ndarray) -> np.ndarray:
    return 2 * values


def test_a_compiled_function_computes_what_it_says() -> None:
    assert compiled(doubled)(np.array([1, 2])).tolist() == [2, 4]


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
        "import sys, tokenmill.cli.build, tokenmill.cli.display, tokenmill.run.build, "
        "tokenmill.run.local.worker, tokenmill.report.verify; print('numba' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout == "False\n"

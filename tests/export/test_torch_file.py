"""`.pt` files that are written without PyTorch, against `torch.save`."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.load.export.columns import Columns
from tokenmill.load.export.torch_file import TorchFile

DTYPES = {
    "input_ids": ("int32", "uint16"),
    "labels": ("int64",),
    "position_ids": ("int32",),
    "attention_mask": ("int8",),
}


@st.composite
def tensors(draw: st.DrawFn) -> Columns:
    """Some of the columns of an export, in any order."""
    names = draw(st.permutations(list(DTYPES)))[: draw(st.integers(1, 4))]
    num_rows = draw(st.sampled_from([1, 3, 255, 256, 70_000]))
    row_length = draw(st.sampled_from([1, 2, 16] if num_rows > 256 else [1, 7, 64, 257]))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    return {
        name: random.integers(0, 128, (num_rows, row_length)).astype(
            draw(st.sampled_from(DTYPES[name]))
        )
        for name in names
    }


def write(path: Path, columns: Columns, rows_at_once: int) -> None:
    num_rows = len(next(iter(columns.values())))
    file = TorchFile(path, num_rows, columns)
    for start in range(0, num_rows, rows_at_once):
        part = slice(start, start + rows_at_once)
        file.append({name: values[part] for name, values in columns.items()})
    file.finish()


def saved_by_torch(columns: Columns, path: Path) -> bytes:
    torch.save({name: torch.from_numpy(values) for name, values in columns.items()}, path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torch")


@settings(max_examples=60, deadline=None)
@given(
    columns=tensors(),
    rows_at_once=st.sampled_from([100, 40_000]),
    name=st.sampled_from(["rows-7-00000.pt", "rows-512-00001.pt", "rows-131072-100000.pt"]),
)
def test_a_file_has_the_bytes_that_torch_writes(
    columns: Columns, rows_at_once: int, name: str, folder: Path
) -> None:
    path = folder / name  # names of records begin with it, and move what follows
    write(path, columns, rows_at_once)
    assert path.read_bytes() == saved_by_torch(columns, path)


@pytest.mark.parametrize("as_map", [False, True])
def test_torch_loads_a_file_into_memory_or_as_a_map(as_map: bool, folder: Path) -> None:
    columns: Columns = {
        "input_ids": np.array([[1, 65_535, 3], [4, 5, 0]], np.uint16),
        "labels": np.array([[1, -100, 3], [4, 5, -100]], np.int64),
        "position_ids": np.array([[0, 1, 2], [0, 1, 2**31 - 1]], np.int32),
        "attention_mask": np.array([[1, 1, 1], [1, 1, 0]], np.int8),
    }
    path = folder / "rows-3-00000.pt"
    write(path, columns, rows_at_once=1)
    loaded = torch.load(path, weights_only=True, mmap=as_map)
    assert list(loaded) == list(columns)
    for name, values in columns.items():
        assert loaded[name].dtype == getattr(torch, values.dtype.name)
        assert loaded[name].tolist() == values.tolist()


def test_checksums_are_those_that_other_readers_of_archives_expect(folder: Path) -> None:
    path = folder / "rows-2-00000.pt"
    write(path, {"input_ids": np.array([[1, 2]], np.uint16)}, rows_at_once=1)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_writing_does_not_import_torch() -> None:
    code = "import sys, tokenmill.load.export.rows; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

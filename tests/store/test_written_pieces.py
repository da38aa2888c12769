"""Writes of any size, in pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tokenmill.store import files
from tokenmill.store.files import PIECE_BYTES, ArrowSink, write_pieces


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES - 1])
def test_all_bytes_are_written(size: int, tmp_path: Path) -> None:
    data = (np.arange(size) % 251).astype(np.uint8)
    with open(tmp_path / "file", "wb") as file:
        write_pieces(file, data)
    assert (tmp_path / "file").read_bytes() == data.tobytes()


def test_an_array_of_rows_is_written_row_by_row(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        write_pieces(file, np.array([[1, 2], [3, 4]], "<u2"))
    assert (tmp_path / "file").read_bytes() == bytes([1, 0, 2, 0, 3, 0, 4, 0])


@pytest.mark.parametrize("num_there", [0, 1, 100, 300])
def test_a_stream_that_arrow_begins_again_is_written_behind_what_is_there(
    num_there: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 64)
    table = pa.table({"ids": [[1, 2, 3], [4, 5]] * 50})
    with open(tmp_path / "whole", "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "begun").write_bytes(whole[:num_there])
    with (
        open(tmp_path / "begun", "ab") as file,
        pa.ipc.new_stream(ArrowSink(file, num_there), table.schema) as writer,
    ):
        writer.write_table(table)
    assert (tmp_path / "begun").read_bytes() == whole

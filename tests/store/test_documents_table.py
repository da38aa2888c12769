"""The documents table: whole rows, and bytes that do not depend on the sizes of batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tokenmill.core.records import CharSpans, DocumentBatch
from tokenmill.store import documents_table
from tokenmill.store.documents_table import DocumentRows, DocumentsWriter, read_documents

COUNT = 25


def batch_of(start: int, stop: int) -> tuple[DocumentBatch, np.ndarray, list[CharSpans]]:
    numbers = range(start, stop)
    batch = DocumentBatch(
        source=0,
        texts=["" for _ in numbers],
        positions=np.array(numbers, np.int64),
        record_bytes=np.zeros(len(numbers), np.int64),
        ids=[None if number % 5 == 4 else f"id {number}" for number in numbers],
        columns={"lang": [["de", None, "en"][number % 3] for number in numbers]},
    )
    in_validation = np.array([number % 4 == 0 for number in numbers], dtype=bool)
    return batch, in_validation, [[(0, number)] if number % 2 else [] for number in numbers]


def write(path: Path, sizes: list[int], *, has_no_loss: bool = True) -> bytes:
    writer = DocumentsWriter(path, ["a", "b"], ["lang"], has_no_loss=has_no_loss)
    at = 0
    for size in sizes:
        batch, in_validation, spans = batch_of(at, at + size)
        rows = DocumentRows.of([batch], in_validation, spans if has_no_loss else [])
        writer.append(rows)
        at += size
    writer.close()
    return path.read_bytes()


@pytest.mark.parametrize("has_no_loss", [True, False])
@pytest.mark.parametrize("rows_per_group", [1, 7, 10, 100])
def test_bytes_do_not_depend_on_the_sizes_of_batches(
    rows_per_group: int, has_no_loss: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_table, "ROWS_PER_GROUP", rows_per_group)
    cuts = [[COUNT], [1] * COUNT, [7, 7, 7, 4], [3, 0, 20, 2], [24, 1]]
    written = {write(tmp_path / "file", sizes, has_no_loss=has_no_loss) for sizes in cuts}
    assert len(written) == 1
    groups = pq.ParquetFile(tmp_path / "file").metadata
    assert groups.num_row_groups == -(-COUNT // rows_per_group)


def test_rows_hold_place_id_subset_kept_columns_and_spans(tmp_path: Path) -> None:
    write(tmp_path / "file", [2, 3])
    assert pq.read_table(tmp_path / "file").to_pylist() == [
        {
            "source": "a",
            "position": number,
            "id": identifier,
            "subset": "validation" if number % 4 == 0 else "train",
            "column.lang": language,
            "no_loss": [{"start": 0, "stop": number}] if number % 2 else [],
        }
        for number, identifier, language in [
            (0, "id 0", "de"),
            (1, "id 1", None),
            (2, "id 2", "en"),
            (3, "id 3", "de"),
            (4, None, None),
        ]
    ]


def write_sources(path: Path, sources: list[int], batch_rows: int) -> bytes:
    """A table with a row of each of these of 1,000 sources."""
    writer = DocumentsWriter(path, [f"{n}.jsonl" for n in range(1000)], [], has_no_loss=False)
    for start in range(0, len(sources), batch_rows):
        part = np.array(sources[start : start + batch_rows], np.int32)
        count = len(part)
        nothing = np.zeros(count, dtype=bool)
        positions = np.arange(start, start + count)
        writer.append(DocumentRows(part, positions, [None] * count, nothing, {}, []))
    writer.close()
    return path.read_bytes()


def test_a_row_group_names_only_the_sources_that_it_has_rows_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_table, "ROWS_PER_GROUP", 3)
    sources = [7, 7, 5, 900, 900, 900, 5, 8]
    written = {write_sources(tmp_path / "file", sources, rows) for rows in (1, 2, 3, 8)}
    assert len(written) == 1
    with pq.ParquetFile(tmp_path / "file") as file:
        groups = [file.read_row_group(n).column("source").chunk(0) for n in range(3)]
    names = [group.dictionary.to_pylist() for group in groups]
    assert names == [["5.jsonl", "7.jsonl"], ["900.jsonl"], ["5.jsonl", "8.jsonl"]]
    table = read_documents(tmp_path / "file", len(sources))
    assert table.column("source").to_pylist() == [f"{n}.jsonl" for n in sources]
    assert table.column("source").unique().to_pylist() == [f"{n}.jsonl" for n in (7, 5, 900, 8)]

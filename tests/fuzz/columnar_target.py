"""Damaged Parquet and Arrow files, read as a build reads them."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_kit import CONTAINED

from tokenmill.core.errors import DataError, UserError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.formats.tables.isolated import ask
from tokenmill.read.source import Source
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Stream, feed_stream

FIELDS = Fields(id="id", keep=("meta", "day"), no_loss="spans")
TEXTS = ["alpha beta gamma", "", "delta " * 9, "äöü 日本 😀", None]


def table(rows: int = 20, text_type: pa.DataType | None = None) -> pa.Table:
    """Texts, ids, ranges and a nested column."""
    text_type = text_type or pa.string()
    texts = pa.array([TEXTS[row % 5] for row in range(rows)])
    is_dictionary = pa.types.is_dictionary(text_type)
    span = pa.list_(pa.struct([("start", pa.int64()), ("stop", pa.int64())]))
    meta = [{"lang": "de", "tags": ["a", "b"]}, None, {"lang": None, "tags": []}, {}]
    return pa.table(
        {
            "text": texts.dictionary_encode() if is_dictionary else texts.cast(text_type),
            "id": pa.array([f"id-{row}" for row in range(rows)]),
            "n": pa.array(range(rows)),
            "meta": pa.array([meta[row % 4] for row in range(rows)]),
            "day": pa.array(range(rows), pa.date32()),
            "spans": pa.array(
                [[{"start": 0, "stop": row}] * (row % 3) for row in range(rows)], span
            ),
        }
    )


def parquet(**options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table(), file, row_group_size=8, **options)
    return file.getvalue()


def arrow(new: Any, text_type: pa.DataType | None = None, compression: str | None = None) -> bytes:
    rows = table(text_type=text_type)
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(file, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=8)
    return file.getvalue()


@functools.cache
def seeds() -> dict[str, bytes]:
    """The same rows in many encodings. Texts of those named "plain" stand in them as they are."""
    delta = {
        "text": "DELTA_BYTE_ARRAY",
        "id": "DELTA_LENGTH_BYTE_ARRAY",
        "n": "DELTA_BINARY_PACKED",
    }
    dictionary = pa.dictionary(pa.int32(), pa.string())
    return {
        "plain.parquet": parquet(compression="none", use_dictionary=False),
        "dictionary.parquet": parquet(compression="none"),
        "snappy.parquet": parquet(compression="snappy"),
        "zstd.parquet": parquet(compression="zstd", data_page_version="2.0"),
        "checked.parquet": parquet(compression="gzip", write_page_checksum=True),
        "delta.parquet": parquet(use_dictionary=False, column_encoding=delta),
        "plain.arrow-file": arrow(pa.ipc.new_file),
        "plain.arrow-stream": arrow(pa.ipc.new_stream),
        "plain-large.arrow-file": arrow(pa.ipc.new_file, pa.large_string()),
        "plain-view.arrow-stream": arrow(pa.ipc.new_stream, pa.string_view()),
        "dictionary.arrow-file": arrow(pa.ipc.new_file, dictionary),
        "dictionary.arrow-stream": arrow(pa.ipc.new_stream, dictionary),
        "lz4.arrow-file": arrow(pa.ipc.new_file, compression="lz4"),
        "zstd.arrow-stream": arrow(pa.ipc.new_stream, compression="zstd"),
    }


def check(name: str, data: bytes, folder: Path) -> str:
    """Ask everything that a build asks; documents, or an error with a type, may come of it."""
    path = folder / "file"
    path.write_bytes(data)
    try:
        (source,) = find_sources([str(path)])
    except UserError:  # its first bytes are of another kind now
        return "not a table"
    if source.format != name.rpartition(".")[2]:
        return "not a table"
    steps: list[Callable[[], object]] = [
        lambda: ask(source, "columns", FIELDS),
        lambda: ask(source, "totals", FIELDS),
        lambda: check_texts(name, data, read(source)),
        lambda: list(feed_stream(Stream(0, 256), source, FIELDS, folder, bool)),
    ]
    if source.format != "arrow-stream":
        steps.append(lambda: ask(source, "groups"))
    outcomes = {outcome_of(step) for step in steps}
    for spool in folder.glob("*.spool"):
        spool.unlink()
    return next(each for each in (CONTAINED, "refused", "read") if each in outcomes)


def outcome_of(step: Callable[[], object]) -> str:
    try:
        step()
    except (DataError, UserError) as error:
        return CONTAINED if "crashes" in error.why else "refused"
    return "read"


def read(source: Source) -> list[str]:
    batches = Reader([source], FIELDS, 256).read(Extent(0))
    return [text for batch in batches for text in batch.texts]


def check_texts(name: str, data: bytes, texts: list[str]) -> None:
    """A text holds nothing that the file does not hold."""
    for text in texts:
        if name.startswith("plain"):
            assert text.encode() in data, f"{text!r} is not in the file"
        assert len(text.encode()) <= 1000 * len(data), f"{len(text)} characters"

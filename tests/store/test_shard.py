"""A shard while it is written: five files that agree with each other."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tokenmill.core.errors import DataError
from tokenmill.core.records import DocumentBatch, Rejection
from tokenmill.store import shard
from tokenmill.store.digests import block_digests, file_digest
from tokenmill.store.documents_table import DocumentRows
from tokenmill.store.layout import pack_index
from tokenmill.store.shard import ShardLayout, ShardWriter

UINT16 = np.dtype("<u2")
LAYOUT = ShardLayout(UINT16, (), has_no_loss=False)
NAMES = ("first.jsonl", "second.jsonl")


def append(writer: ShardWriter, source: int, *documents: list[int]) -> None:
    lengths = np.array([len(document) for document in documents], np.int64)
    count = len(documents)
    batch = DocumentBatch(source, [""] * count, np.arange(count) * 10, np.ones(count, np.int64))
    ids = np.array([token for document in documents for token in document], UINT16)
    rows = DocumentRows.of([batch], np.zeros(count, dtype=bool), [])
    writer.append(rows, ids, lengths)


def rejection(record: bytes, reason: str = "invalid-json") -> Rejection:
    return Rejection(1, 40, len(record), reason, "a detail", record)


def test_a_shard_is_tokens_boundaries_digests_documents_and_rejects(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "stem", LAYOUT, NAMES)
    append(writer, 0, [7, 8, 0], [9, 0])
    append(writer, 1, [65_535, 0])
    writer.reject([rejection(b"{broken\n"), rejection(b"\xff", "invalid-utf8")])
    entries = writer.close()
    files = {part: (tmp_path / f"stem.{part}").read_bytes() for part in shard.PARTS}
    assert files["bin"] == np.array([7, 8, 0, 9, 0, 65_535, 0], UINT16).tobytes()
    assert files["idx"] == pack_index(np.array([3, 2, 2]), UINT16)
    assert files["xxh3"] == b"".join(
        block_digests(memoryview(files[part])) for part in ("bin", "idx")
    )
    rows = pq.read_table(tmp_path / "stem.parquet").to_pylist()
    assert [(row["source"], row["position"]) for row in rows] == [
        ("first.jsonl", 0),
        ("first.jsonl", 10),
        ("second.jsonl", 0),
    ]
    place = {"source": "second.jsonl", "position": 40}
    assert [json.loads(line) for line in files["jsonl"].splitlines()] == [
        {
            **place,
            "bytes": 8,
            "reason": "invalid-json",
            "detail": "a detail",
            "record": "{broken\n",
        },
        {
            **place,
            "bytes": 1,
            "reason": "invalid-utf8",
            "detail": "a detail",
            "record_base64": "/w==",
        },
    ]
    assert [(entry.name, entry.bytes, entry.xxh3_128) for entry in entries] == [
        (part, len(data), file_digest(tmp_path / f"stem.{part}")) for part, data in files.items()
    ]


def test_a_shard_without_documents_has_only_its_rejects(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "stem", LAYOUT, NAMES)
    writer.reject([rejection(b"{")])
    assert [entry.name for entry in writer.close()] == ["jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == ["stem.jsonl"]


def test_only_the_first_mib_of_a_rejected_record_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "MAX_REJECTED_RECORD_BYTES", 5)
    writer = ShardWriter(tmp_path, "stem", LAYOUT, NAMES)
    writer.reject([rejection(b"abcdefgh"), rejection("abcdé".encode())])
    writer.close()
    first, second = map(json.loads, (tmp_path / "stem.jsonl").read_text().splitlines())
    assert (first["bytes"], first["record"]) == (8, "abcde")
    assert base64.b64decode(second["record_base64"]) == b"abcd\xc3"


def test_a_document_over_the_limit_of_the_index_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "MAX_DOCUMENT_TOKENS", 3)
    writer = ShardWriter(tmp_path, "stem", LAYOUT, NAMES)
    append(writer, 0, [1, 2, 0])
    with pytest.raises(DataError, match="more than 3 tokens") as caught:
        append(writer, 1, [1, 0], [1, 2, 3, 0])
    assert caught.value.where == "second.jsonl, position 10"
    writer.close()

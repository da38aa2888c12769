"""A dataset, opened: documents where the boundaries say, and nothing taken on trust."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import DocumentBatch
from tokenmill.store.dataset import Dataset
from tokenmill.store.documents_table import DocumentRows
from tokenmill.store.manifest import (
    Counts,
    FileEntry,
    Manifest,
    ShardEntry,
    TokenizerEntry,
    read_manifest,
    write_manifest,
)
from tokenmill.store.shard import ShardLayout, ShardWriter

UINT16 = np.dtype("<u2")
POLICIES = {"read": {}, "encode": {"special_tokens": "text"}}
SHARDS = [[[1, 2, 0], [3, 0]], [[4, 0]], [[5, 6, 7, 0], [8, 0]]]


def write_shard(folder: Path, stem: str, documents: list[list[int]]) -> ShardEntry:
    count = len(documents)
    writer = ShardWriter(folder / "tokens", stem, ShardLayout(UINT16, (), False), ("a.jsonl",))
    batch = DocumentBatch(0, [""] * count, np.arange(count), np.ones(count, np.int64))
    ids = np.array([token for document in documents for token in document], UINT16)
    lengths = np.array([len(document) for document in documents])
    rows = DocumentRows.of([batch], np.zeros(count, dtype=bool), [])
    writer.append(rows, ids, lengths)
    files = [
        msgspec.structs.replace(entry, name=f"tokens/{stem}.{entry.name}")
        for entry in writer.close()
    ]
    return ShardEntry(documents=count, tokens=len(ids), extents=[], files=files)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset of three shards."""
    (tmp_path / "tokens").mkdir()
    shards = [write_shard(tmp_path, f"{i:05d}", shard) for i, shard in enumerate(SHARDS)]
    tokenizer = TokenizerEntry(
        kind="huggingface", encoding="", sha256="", reference="", largest_id=9, prefix_ids=[],
        eos_id=0, pad_id=None, files=[],
    )  # fmt: skip
    totals = Counts(documents=5, tokens=sum(shard.tokens for shard in shards))
    write_manifest(
        tmp_path,
        Manifest(
            dataset_id="", token_dtype="uint16", tokenizer=tokenizer, policies=POLICIES,
            totals=totals, sources=[], shards=shards, rejected=[],
        ),
    )  # fmt: skip
    return tmp_path


def rewrite(folder: Path, **changes: Any) -> None:
    write_manifest(folder, msgspec.structs.replace(read_manifest(folder), **changes))


def test_a_dataset_shows_what_it_holds(tmp_path: Path, folder: Path) -> None:
    shown = f"<Dataset {str(folder)!r}: 5 documents, 13 tokens in 3 shards, no plans>"
    assert repr(Dataset(folder)) == shown
    single = tmp_path / "single"
    (single / "tokens").mkdir(parents=True)
    entry = write_shard(single, "00000", SHARDS[0])
    counts = Counts(documents=entry.documents, tokens=entry.tokens)
    manifest = read_manifest(folder)
    write_manifest(single, msgspec.structs.replace(manifest, shards=[entry], totals=counts))
    assert repr(Dataset(single)).endswith("2 documents, 5 tokens in 1 shard, no plans>")


def test_every_document_is_found_by_its_number(folder: Path) -> None:
    dataset = Dataset(folder)
    assert (dataset.num_documents, dataset.num_tokens) == (5, 13)
    found = []
    for number in range(dataset.num_documents):
        shard, index = dataset.locate(number)
        found.append(shard.document(index).tolist())
    assert found == [document for shard in SHARDS for document in shard]


def test_a_shard_shows_ids_lengths_offsets_and_rows(folder: Path) -> None:
    shard = Dataset(folder).shards[0]
    assert shard.ids.tolist() == [1, 2, 0, 3, 0]
    assert not shard.ids.flags.writeable
    assert (shard.lengths.tolist(), shard.offsets.tolist()) == ([3, 2], [0, 3, 5])
    assert shard.documents()["position"].to_pylist() == [0, 1]


@pytest.mark.parametrize("part", ["bin", "idx", "xxh3", "parquet"])
def test_a_missing_or_shortened_file_is_seen_when_a_dataset_is_opened(
    part: str, folder: Path
) -> None:
    path = folder / f"tokens/00001.{part}"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(VerificationError, match="a file has the wrong size"):
        Dataset(folder)
    path.unlink()
    with pytest.raises(VerificationError, match="a file of the dataset is missing"):
        Dataset(folder)


@pytest.mark.parametrize("name", ["../secret.bin", "/etc/passwd", "tokens/link.bin"])
def test_a_manifest_that_names_files_elsewhere_is_refused(name: str, folder: Path) -> None:
    outside = folder.parent / "secret.bin"
    outside.write_bytes(b"secret")
    (folder / "tokens/link.bin").symlink_to(outside)
    entry = FileEntry(name=name, bytes=6, xxh3_128="")
    rewrite(folder, rejected=[entry])
    with pytest.raises(VerificationError, match="points outside the dataset"):
        Dataset(folder)


def test_an_index_of_another_shard_is_refused(folder: Path) -> None:
    """The first and the last shard have as many documents, but not as many tokens."""
    data = (folder / "tokens/00002.idx").read_bytes()
    (folder / "tokens/00000.idx").write_bytes(data)
    with pytest.raises(VerificationError, match="a token index belongs to a different shard"):
        _ = Dataset(folder).shards[0].lengths


def test_a_documents_table_that_arrow_cannot_read_is_damage_of_the_dataset(folder: Path) -> None:
    shard = Dataset(folder).shards[0]
    path = shard.path("parquet")
    data = path.read_bytes()
    assert shard.documents().column_names == ["source", "position", "id", "subset"]
    assert shard.documents(["position"]).to_pydict() == {"position": [0, 1]}
    path.write_bytes(data[:4] + b"\xff" * 60 + data[64:])
    with pytest.raises(VerificationError, match="a documents table is damaged"):
        shard.documents()
    path.write_bytes(data[:-40] + b"\xff" * 32 + data[-8:])
    with pytest.raises(VerificationError, match="a documents table is damaged"):
        shard.documents(["position"])

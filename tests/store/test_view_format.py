"""Whoever has only docs/reference/format.md can read a view, and check it."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
import xxhash

from load.loading_kit import write_tokenizer
from tokenmill import Dataset
from tokenmill.read import units
from view_kit import built, documents_of, view_of


@pytest.fixture
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Of 11 documents in a shard and of 3 in the next, and of another dataset."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 1)
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    texts = {"a.jsonl": [str(number % 9 + 1) for number in range(11)], "b.jsonl": ["1", "2", "3"]}
    old = built(tmp_path / "old", tokenizer, texts)
    new = built(tmp_path / "new", tokenizer, {"c.jsonl": ["44", "55"]})
    return view_of(tmp_path / "view", [old, new], [0, 7, 8, 10, 12, 15], "some")


def lengths_of(index: bytes) -> list[int]:
    count = int.from_bytes(index[18:26], "little")
    return [int.from_bytes(index[34 + 4 * i : 38 + 4 * i], "little") for i in range(count)]


def test_a_stranger_reads_the_documents_of_a_view(view: Dataset) -> None:
    found = json.loads((view.folder / "view.json").read_bytes())
    selection = (view.folder / "selection.bin").read_bytes()
    assert list(found) == [
        "format", "format_version", "view_id", "parents", "question", "sources", "shards", "file",
        "digest",
    ]  # fmt: skip
    assert (found["format"], found["format_version"]) == ("tokenmill-view", 1)
    assert [parent["place"] for parent in found["parents"]] == ["../old/corpus", "../new/corpus"]
    documents, entries = [], iter(found["shards"])
    for parent in found["parents"]:
        folder = view.folder / parent["place"]
        manifest = json.loads((folder / "manifest.json").read_bytes())
        assert manifest["dataset_id"] == parent["dataset_id"]
        for shard in manifest["shards"]:
            entry = next(entries)
            bits, selection = selection[: entry["bytes"]], selection[entry["bytes"] :]
            unpacked = zlib.decompress(bits)
            assert len(unpacked) == -(-shard["documents"] // 8)
            tokens = (folder / shard["files"][0]["name"]).read_bytes()  # two bytes each, below 12
            start, kept = 0, []
            for i, length in enumerate(
                lengths_of((folder / shard["files"][1]["name"]).read_bytes())
            ):
                if unpacked[i // 8] >> (7 - i % 8) & 1:
                    kept.append(list(tokens[2 * start : 2 * (start + length) : 2]))
                start += length
            assert (entry["documents"], entry["tokens"]) == (len(kept), sum(map(len, kept)))
            documents += kept
    assert not selection
    assert documents == documents_of(view)
    assert len(documents) == 6


def test_the_id_of_a_view_follows_from_its_parents_and_its_selection(view: Dataset) -> None:
    found = json.loads((view.folder / "view.json").read_bytes())
    digest = xxhash.xxh3_128_hexdigest((view.folder / "selection.bin").read_bytes())
    assert found["file"]["xxh3_128"] == digest
    ids = [parent["dataset_id"] for parent in found["parents"]]
    spelled = json.dumps([ids, digest], indent=2) + "\n"
    assert found["view_id"] == xxhash.xxh3_128_hexdigest(spelled.encode())
    assert view.manifest.dataset_id == found["view_id"]

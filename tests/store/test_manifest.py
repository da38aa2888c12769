"""The manifest: books that balance, an identity, and no surprises when it is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.core.errors import InternalError, UserError, VerificationError
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.manifest import (
    FORMAT_VERSION,
    Counts,
    FileEntry,
    Manifest,
    ShardEntry,
    TokenizerEntry,
    dataset_id,
    read_manifest,
    write_manifest,
)


@dataclass(frozen=True)
class Parts:
    """What an identity is made of."""

    shards: list[ShardEntry]
    tokenizer: TokenizerEntry
    policies: dict[str, Any]


def file_entry(name: str, digest: str = "0" * 32) -> FileEntry:
    return FileEntry(name=name, bytes=10, xxh3_128=digest)


def parts(**overrides: Any) -> Parts:
    digests = {part: part * 4 for part in ("bin", "idx", "xxh3", "parquet")}
    digests |= overrides.pop("digests", {})
    files = [file_entry(f"tokens/00000.{part}", digest) for part, digest in digests.items()]
    shard = ShardEntry(documents=1, tokens=5, extents=[], files=files)
    tokenizer = TokenizerEntry(
        kind="tokenizer.json", encoding="", sha256="ab", reference="tokenizers", largest_id=399,
        prefix_ids=[], eos_id=overrides.pop("eos_id", 0), pad_id=None,
        files=[file_entry(overrides.pop("tokenizer_file", "tokenizer/tokenizer.json"))],
    )  # fmt: skip
    return Parts([shard], tokenizer, overrides.pop("policies", {"special_tokens": "text"}))


def identity(**overrides: Any) -> str:
    made = parts(**overrides)
    return dataset_id(made.shards, made.tokenizer, made.policies)


def manifest(**overrides: Any) -> Manifest:
    made = parts()
    values: dict[str, Any] = {
        "dataset_id": identity(),
        "token_dtype": "uint16",
        "tokenizer": made.tokenizer,
        "policies": made.policies,
        "totals": Counts(records=1, documents=1, tokens=5),
        "sources": [],
        "shards": made.shards,
        "rejected": [file_entry("rejected/00000.jsonl")],
    }
    return Manifest(**(values | overrides))


def test_what_is_written_is_read_back_with_every_file_named(tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest())
    found = read_manifest(tmp_path)
    assert found == sealed(manifest())
    assert [file.name for file in found.files] == [
        "tokenizer/tokenizer.json",
        "tokens/00000.bin",
        "tokens/00000.idx",
        "tokens/00000.xxh3",
        "tokens/00000.parquet",
        "rejected/00000.jsonl",
    ]


@pytest.mark.parametrize("has_unknown_fields", [False, True])
def test_a_newer_format_is_refused_with_a_hint_to_upgrade(
    has_unknown_fields: bool, tmp_path: Path
) -> None:
    newer = msgspec.to_builtins(manifest(format_version=FORMAT_VERSION + 1))
    newer |= {"hologram": True} if has_unknown_fields else {}
    (tmp_path / "manifest.json").write_text(json.dumps(newer))
    with pytest.raises(UserError, match=f"format version {FORMAT_VERSION + 1}") as caught:
        read_manifest(tmp_path)
    assert caught.value.hint == "install a newer tokenmill"


@pytest.mark.parametrize("values", [{"format": "other"}, {"format_version": 1}])
def test_another_format_is_refused(values: dict[str, Any], tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest(**values))
    with pytest.raises((UserError, VerificationError), match="format"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"\xff", b'{"x": ' + b"[" * 100_000, canonical_json(manifest())],
    ids=["empty", "object", "array", "not UTF-8", "nested", "without a digest"],
)
def test_rubbish_in_place_of_a_manifest_is_named_as_damage(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(VerificationError, match="the file is damaged"):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the folder does not exist"):
        read_manifest(tmp_path / "typo")
    with pytest.raises(UserError, match="it has no manifest"):
        read_manifest(tmp_path)
    (tmp_path / "work").mkdir()
    with pytest.raises(UserError, match="the build has not finished"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"digests": {"bin": "other"}},
        {"digests": {"idx": "other"}},
        {"eos_id": 7},
        {"policies": {"special_tokens": "control"}},
    ],
)
def test_tokens_boundaries_tokenizer_and_policies_are_the_identity(change: Any) -> None:
    assert identity(**change) != identity()


@pytest.mark.parametrize(
    "change", [{"digests": {"parquet": "other"}}, {"tokenizer_file": "tokenizer/other.json"}]
)
def test_nothing_else_is_part_of_the_identity(change: Any) -> None:
    assert identity(**change) == identity()


@pytest.mark.parametrize(
    "change",
    [
        {"records": 5},
        {"record_bytes": 61},
        {"documents": 1},
        {"empty": 2},
        {"rejected": {}},
        {"rejected_bytes": 0},
    ],
)
def test_a_record_or_byte_that_is_unaccounted_for_is_our_own_bug(change: dict[str, Any]) -> None:
    values: dict[str, Any] = {
        "records": 6, "record_bytes": 60, "documents": 2, "document_bytes": 30, "empty": 1,
        "empty_bytes": 10, "rejected": {"null-text": 3}, "rejected_bytes": 20,
    }  # fmt: skip
    with pytest.raises(InternalError, match="the totals of the build do not add up") as caught:
        Counts(**(values | change)).check_balance("a.jsonl")
    assert caught.value.where == "a.jsonl"


numbers = st.integers(0, 1000)
counts = st.builds(
    Counts,
    **{name: numbers for name in Counts.__struct_fields__ if name not in ("rejected", "further")},
    further=st.just(msgspec.UNSET) | st.integers(1, 1000),
    rejected=st.dictionaries(st.sampled_from(["b", "a", "c"]), st.integers(1, 9)),
)


@given(counts, counts)
@settings(deadline=None)
def test_books_are_added_field_by_field(first: Counts, second: Counts) -> None:
    total = Counts()
    total.add(first)
    total.add(second)
    for name in Counts.__struct_fields__:
        if name not in ("rejected", "further"):
            assert getattr(total, name) == getattr(first, name) + getattr(second, name)
    assert (total.further or 0) == (first.further or 0) + (second.further or 0)
    assert total.further != 0, "absent if there are none"
    assert total.num_rejected == first.num_rejected + second.num_rejected
    assert list(total.rejected) == sorted({*first.rejected, *second.rejected})

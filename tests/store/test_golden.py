"""A dataset of the current format opens, verifies and reads the same, and is built the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokenmill
from tokenmill.read import units
from tokenmill.store.manifest import read_manifest

V2 = Path(__file__).parents[1] / "golden" / "v2"
"""Two files in units of about 256 bytes, up to the seventh document."""
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Zwölf Boxkämpfer jagen Viktor.",
    "日本語 😀",
    "Portez ce vieux whisky au juge blond qui fume.",
    "Съешь ещё этих мягких французских булок.",
    "Pack my box with five dozen liquor jugs.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
]


def texts_of(folder: Path) -> list[str]:
    views = [
        tokenmill.view_document(folder, n) for n in range(tokenmill.open(folder).num_documents)
    ]
    return ["".join(piece.text for piece in view.pieces) for view in views]


def test_version_2_opens_and_verifies() -> None:
    result = tokenmill.verify(V2 / "dataset")
    assert (result.documents, result.dataset.manifest.format_version) == (7, 2)
    assert result.dataset.manifest.dataset_id == "4ea5752585ecf51b29f28a4d98743850"


def test_version_2_reads_as_it_was_written() -> None:
    assert texts_of(V2 / "dataset") == [f"{text}<|endoftext|>" for text in TEXTS]
    tables = [shard.documents() for shard in tokenmill.open(V2 / "dataset").shards]
    assert [row["source"] for table in tables for row in table.to_pylist()] == [
        *["a.jsonl"] * 3,
        *["b.jsonl"] * 4,
    ]


def test_version_2_names_files_by_unit() -> None:
    """The second unit of the first file has no documents; in the last one the limit was reached."""
    manifest = read_manifest(V2 / "dataset")
    keys = ["00000000-000000", "00000001-000000", "00000001-000001-limit"]
    assert [[file.name for file in shard.files] for shard in manifest.shards] == [
        [f"tokens/{key}.bin", f"tokens/{key}.idx", f"tokens/{key}.xxh3", f"documents/{key}.parquet"]
        for key in keys
    ]
    assert [file.name for file in manifest.rejected] == ["rejected/00000000-000001.jsonl"]


def test_todays_build_writes_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of documents tables are those of the installed Arrow."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 256)
    monkeypatch.setattr(units, "PIECE_BYTES", 128)
    tokenmill.build(
        V2 / "corpus", V2 / "dataset" / "tokenizer", tmp_path / "out", workers=1, id_field="id",
        keep=["lang"], no_loss="mask", validation=0.5, max_bad=0.5, max_documents=7,
    )  # fmt: skip
    names = [file.name for file in read_manifest(V2 / "dataset").files]
    assert [file.name for file in read_manifest(tmp_path / "out").files] == names
    for name in names:
        if not name.endswith(".parquet"):
            expected = (V2 / "dataset" / name).read_bytes()
            assert (tmp_path / "out" / name).read_bytes() == expected

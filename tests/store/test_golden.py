"""Datasets of every released format version open, verify and read the same, for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import tokenmill

V1 = Path(__file__).parents[1] / "golden" / "v1"


def test_version_1_opens_and_verifies() -> None:
    result = tokenmill.verify(V1 / "dataset")
    assert (result.documents, result.dataset.manifest.format_version) == (3, 1)
    assert result.dataset.manifest.dataset_id == "183bf1a1f2a556fda2914b21e5c0e66e"


def test_version_1_reads_as_it_was_written() -> None:
    texts = []
    for number in range(3):
        view = tokenmill.view_document(V1 / "dataset", number)
        texts.append("".join(piece.text for piece in view.pieces))
    assert texts == [
        "The quick brown fox jumps over the lazy dog.<|endoftext|>",
        "Zwölf Boxkämpfer jagen Viktor.<|endoftext|>",
        "日本語 😀<|endoftext|>",
    ]


def test_version_1_keeps_what_was_known_of_its_documents() -> None:
    (shard,) = tokenmill.open(V1 / "dataset").shards
    rows = shard.documents().to_pylist()
    assert [(row["id"], row["column.lang"], row["no_loss"]) for row in rows] == [
        ("doc-0", "en", [{"start": 0, "stop": 1}]),
        ("doc-1", "de", []),
        ("doc-2", None, []),
    ]


def test_todays_build_writes_the_tokens_of_version_1(tmp_path: Path) -> None:
    shutil.copy(V1 / "corpus.jsonl", tmp_path)
    tokenmill.build(
        tmp_path / "corpus.jsonl", V1 / "dataset" / "tokenizer", tmp_path / "out",
        workers=1, id_field="id", keep=["lang"], no_loss="mask", validation=0.5, max_bad=0.5,
    )  # fmt: skip
    for name in ("tokens/{}.bin", "tokens/{}.idx", "rejected/{}.jsonl"):
        today = (tmp_path / "out" / name.format("00000000-000000")).read_bytes()
        assert today == (V1 / "dataset" / name.format("00000")).read_bytes()

"""Datasets of rank files whose pattern and special tokens the user gives."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from pathlib import Path

import pytest

import tokenmill
from tokenmill.cli import main
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.encode.words.patterns import LLAMA3_SPLIT, QWEN2_SPLIT
from tokenmill.store.stored_reference import open_reference

pytest.importorskip("tiktoken")

END = "<|end|>"
PATTERN, OTHER = QWEN2_SPLIT, LLAMA3_SPLIT
"""Both cut "ab 1+1" into the same words. They are known to end, so nobody tries them first."""


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    pieces = [*(bytes([byte]) for byte in range(256)), b"ab", b"1+"]
    path = tmp_path / "own.tiktoken"
    path.write_bytes(b"".join(b64encode(p) + b" %d\n" % i for i, p in enumerate(pieces)))
    (tmp_path / "specials.json").write_text(json.dumps({END: 300}))
    (tmp_path / "a.txt").write_text("ab 1+1")
    return path


def build(ranks: Path, pattern: str = PATTERN, out: str = "out", workers: int = 1) -> int:
    folder = ranks.parent
    options = ["--pattern", pattern, "--specials-from", folder / "specials.json", "--eos", END]
    arguments = [folder / "a.txt", "--tokenizer", ranks, "--out", folder / out, *options]
    return main(["build", *map(str, arguments), "--workers", str(workers)])


def test_a_dataset_carries_what_was_given_and_opens_elsewhere(ranks: Path) -> None:
    assert build(ranks, workers=2) == 0
    shutil.move(ranks.parent / "out", ranks.parent / "moved")
    ranks.unlink()
    (ranks.parent / "specials.json").unlink()
    dataset = tokenmill.open(ranks.parent / "moved")
    entry = dataset.manifest.tokenizer
    assert entry.encoding == "explicit"
    assert [file.name for file in entry.files] == [
        "tokenizer/tokenizer.tiktoken",
        "tokenizer/rank_encoding.json",
    ]
    ids = dataset.shards[0].document(0).tolist()
    assert ids == [256, 32, ord("1"), ord("+"), ord("1"), 300]
    assert open_reference(dataset).decode(ids) == "ab 1+1" + END
    tokenmill.verify(dataset.folder)
    folder = dataset.folder / "tokenizer"
    assert tokenmill.check_tokenizer(dataset, folder) == entry.fingerprint


def test_a_changed_copy_of_it_is_not_the_datasets(ranks: Path) -> None:
    assert build(ranks) == 0
    stored = ranks.parent / "out" / "tokenizer" / "rank_encoding.json"
    stored.write_text(stored.read_text().replace("300", "301"))
    with pytest.raises(VerificationError, match="is not the one that encoded it"):
        open_reference(tokenmill.open(ranks.parent / "out"))


def test_the_pattern_is_part_of_what_a_dataset_is(
    ranks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(ranks) == 0
    assert build(ranks, PATTERN, "again") == 0
    assert build(ranks, OTHER, "other") == 0
    first, again, other = (
        tokenmill.open(ranks.parent / name).manifest for name in ("out", "again", "other")
    )
    assert first.dataset_id == again.dataset_id
    assert first.dataset_id != other.dataset_id
    assert first.shards == other.shards
    capsys.readouterr()
    assert build(ranks, OTHER) != 0
    assert "tokenizer: was" in capsys.readouterr().err


def test_the_same_in_python(ranks: Path) -> None:
    assert build(ranks) == 0
    report = tokenmill.build(
        ranks.parent / "a.txt",
        ranks,
        ranks.parent / "python",
        pattern=PATTERN,
        specials_from=ranks.parent / "specials.json",
        eos=END,
        workers=1,
    )
    given = tokenmill.RankEncoding(PATTERN, {END: 300})
    dataset = tokenmill.open(ranks.parent / "out")
    assert report.manifest.dataset_id == dataset.manifest.dataset_id
    assert tokenmill.check_tokenizer(dataset, ranks, encoding=given)
    with pytest.raises(UserError, match="the tokenizer is not the one"):
        tokenmill.check_tokenizer(dataset, ranks, encoding=tokenmill.RankEncoding(PATTERN))

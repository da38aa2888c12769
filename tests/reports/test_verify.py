"""Any change of any byte of a dataset is found, by opening it or by verifying it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpora import write_corpus

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import TokenmillError, UserError, VerificationError
from tokenmill.read import units


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A dataset of three documents and one rejected record."""
    folder = tmp_path_factory.mktemp("tiny")
    path = write_jsonl(folder / "a.jsonl", ["one", "two", "three", None])
    tokenizer = json.loads(tokenizer_path.read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, separators=(",", ":")))
    tokenmill.build(path, folder / "tokenizer.json", folder / "out", workers=1, max_bad=0.5)
    return folder / "out"


def flips(folder: Path, step: int) -> Iterator[tuple[Path, int]]:
    """One byte of `step` of every file; of the tokenizer, which is large, of 16 times as many."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            apart = 16 * step if path.name == "tokenizer.json" else step
            yield from ((path, place) for place in range(0, path.stat().st_size, apart))


@pytest.mark.parametrize(
    ("step", "least"), [(5, 1_000), pytest.param(1, 5_000, marks=pytest.mark.soak)]
)
def test_every_flipped_byte_is_found(tiny: Path, tmp_path: Path, step: int, least: int) -> None:
    out = tmp_path / "out"
    shutil.copytree(tiny, out)
    tokenmill.verify(out)
    missed, count = [], 0
    for path, place in flips(out, step):
        data = bytearray(path.read_bytes())
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        try:
            tokenmill.verify(out)
        except TokenmillError:
            pass
        else:
            missed.append((path.name, place))
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        count += 1
    assert missed == []
    assert count > least
    tokenmill.verify(out)


def test_a_missing_a_cut_and_a_swapped_file_are_found_when_the_dataset_is_opened(
    tiny: Path, tmp_path: Path
) -> None:
    for change in ("missing", "cut"):
        out = tmp_path / change
        shutil.copytree(tiny, out)
        path = out / "tokens" / "00000000-000000.bin"
        path.unlink() if change == "missing" else path.write_bytes(path.read_bytes()[:-2])
        with pytest.raises(VerificationError):
            tokenmill.open(out)


def test_a_stranger_among_the_files_is_reported(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "out")
    (tmp_path / "out" / "tokens" / "00001.bin").write_bytes(b"")
    with pytest.raises(VerificationError, match="not part of the dataset"):
        tokenmill.verify(tmp_path / "out")


@pytest.fixture
def built(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Path], Path]:
    """Two files and the dataset of several shards that was built from them."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
    paths = write_corpus(tmp_path / "data", num_files=2, per_file=300)
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    return paths, tmp_path / "out"


def test_every_document_is_compared_with_its_source(built: tuple[list[Path], Path]) -> None:
    _, out = built
    result = tokenmill.verify(out, against_sources=True)
    assert result.compared_documents == result.documents == 592


def test_a_sample_looks_at_a_part(built: tuple[list[Path], Path]) -> None:
    _, out = built
    result = tokenmill.verify(out, sample=0.2, against_sources=True)
    assert 60 < result.compared_documents < 180


def test_a_source_of_another_size_is_refused(built: tuple[list[Path], Path]) -> None:
    paths, out = built
    paths[0].write_text("")
    with pytest.raises(UserError, match="a source has changed since the build"):
        tokenmill.verify(out, against_sources=True)


def test_an_unfinished_build_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(UserError, match="has not finished"):
        tokenmill.open(tmp_path)


@pytest.mark.parametrize("sample", [0, -1, 5, float("nan")])
def test_a_share_that_checks_next_to_nothing_is_refused(tiny: Path, sample: float) -> None:
    with pytest.raises(UserError) as caught:
        tokenmill.verify(tiny, sample=sample)
    assert caught.value.why == f"sample: got {sample}; must be above 0 and at most 1"

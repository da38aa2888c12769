"""Machines that verify a part each find together what one machine finds, and each thing once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import write_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill
from conftest import Printed
from tokenmill.cli import main
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.read import units
from tokenmill.reports.contents import share
from tokenmill.store.manifest import read_manifest

SHARDS = ("0/3", "1/3", "2/3")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Four files in a folder `data`, and the dataset `out` of many shards with two plans."""
    folder = tmp_path_factory.mktemp("parts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
        write_corpus(folder / "data", num_files=3, per_file=200)
        (folder / "data" / "z.jsonl").write_text('{"no": 1}\n{"text": "the end"}\n')
        tokenmill.build(folder / "data", tokenizer_path, folder / "out", workers=1, max_bad=0.5)
    for length in (32, 64):
        tokenmill.pack(folder / "out", sequence_length=length)
    return folder


@pytest.fixture
def own(built: Path, tmp_path: Path) -> Path:
    """A copy of the dataset, to be damaged."""
    return Path(shutil.copytree(built / "out", tmp_path / "own"))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=8), st.integers(1, 6))
def test_every_item_is_in_one_part(sizes: list[int], count: int) -> None:
    parts = [share(sizes, index, count) for index in range(count)]
    items = [item for part in parts for item in range(len(sizes))[part]]
    assert items == list(range(len(sizes)))


def test_the_parts_together_are_the_whole(built: Path) -> None:
    whole = tokenmill.verify(built / "out", against_sources=True)
    parts = [tokenmill.verify(built / "out", against_sources=True, shard=each) for each in SHARDS]
    assert sum(part.files for part in parts) == whole.files + 2  # each checks the tokenizer
    for name in ("documents", "tokens", "plans", "compared_documents"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole, name)
        assert name == "plans" or all(getattr(part, name) for part in parts)
    assert sum(part.decoded_documents for part in parts) == whole.decoded_documents


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def name_of(part: str, shard: int) -> Callable[[Path], str]:
    """The name of a file of a shard."""
    return lambda folder: next(
        file.name for file in read_manifest(folder).shards[shard].files if file.name.endswith(part)
    )


DAMAGES: dict[str, Callable[[Path], str]] = {
    "first tokens": name_of(".bin", 0),
    "last tokens": name_of(".bin", -1),
    "index": name_of(".idx", 3),
    "digests": name_of(".xxh3", 4),
    "table": name_of(".parquet", -2),
    "rejected": lambda folder: read_manifest(folder).rejected[0].name,
    "run": lambda folder: "run.json",
    "plan": lambda folder: "plans/best-fit-64/starts.npy",
    "tokenizer": lambda folder: "tokenizer/tokenizer.json",
}


def failing(folder: Path, **options: Any) -> int:
    """How many of the parts report a problem."""
    count = 0
    for shard in SHARDS:
        try:
            tokenmill.verify(folder, shard=shard, **options)
        except VerificationError:
            count += 1
    return count


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found_by_the_part_that_it_is_in(kind: str, own: Path) -> None:
    """Whoever decodes needs the tokenizer, and whoever checks a plan all indexes."""
    flip(own / DAMAGES[kind](own))
    assert failing(own) == {"tokenizer": 3, "index": 2}.get(kind, 1)


@pytest.mark.parametrize(
    ("place", "change"), [("first", "edited"), ("middle", "missing"), ("last", "inserted")]
)
def test_a_source_that_says_something_else_is_found_by_one_part(
    place: str, change: str, built: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(built / "data", tmp_path / "data"))
    path = sorted(data.iterdir())[{"first": 0, "middle": 1, "last": 2}[place]]
    lines = path.read_text().splitlines(keepends=True)
    middle = len(lines) // 2
    spare = json.dumps({"text": "abc" * 30}) + "\n"
    built_lines = [*lines[:middle], spare, *lines[middle:]]
    path.write_text("".join(built_lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
        tokenmill.build(data, tokenizer_path, tmp_path / "out", workers=1, max_bad=0.5)
    assert failing(tmp_path / "out", against_sources=True) == 0
    changed = {
        "edited": json.dumps({"text": "abd" * 30}) + "\n",
        "missing": " " * (len(spare) - 1) + "\n",
        "inserted": '{"text": "x"}\n' + json.dumps({"text": "abc" * 30})[:-14] + "\n",
    }[change]
    changed = changed[: len(spare) - 1].ljust(len(spare) - 1) + "\n"
    path.write_text("".join([*lines[:middle], changed, *lines[middle:]]))
    assert failing(tmp_path / "out", against_sources=True) == 1


def test_parts_of_a_build_that_stopped_at_a_limit_compare_its_documents(
    built: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    tokenmill.build(
        built / "data", tokenizer_path, tmp_path / "out", workers=1, max_documents=250, max_bad=0.5
    )
    parts = [
        tokenmill.verify(tmp_path / "out", against_sources=True, shard=each) for each in SHARDS
    ]
    assert [part.compared_documents for part in parts] == [198, 52, 0]


@pytest.mark.parametrize("shard", ["3/3", "x", "1/0", "-1/3"])
def test_other_parts_are_refused(shard: str, built: Path) -> None:
    with pytest.raises(UserError, match=f"invalid shard '?{shard}"):
        tokenmill.verify(built / "out", shard=shard)


def test_the_command_names_its_part(built: Path, capsys: Printed) -> None:
    assert main(["verify", str(built / "out"), "--shard", "1/3"]) == 0
    assert capsys.readouterr().out.startswith("verified shard 1/3: ")
    assert main(["verify", str(built / "out"), "--shard", "1/3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shard"] == "1/3"

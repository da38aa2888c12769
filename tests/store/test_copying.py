"""A copied dataset has every byte of the first, whatever happened on the way, or is no dataset."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from corpora import write_corpus

import tokenmill
from cloud_kit.s3 import BUCKET, moto, s3_environment
from tokenmill.core.errors import OutputConflictError, UserError, VerificationError
from tokenmill.read import units
from tokenmill.store.copying import ends
from tokenmill.store.manifest import FileEntry, read_manifest, write_manifest

KILLED_AFTER_PIECES = """
import os, sys
from tokenmill.store.cloud import client
from tokenmill.store.copying import copy, ends

left = int(sys.argv[3])
whole = copy.Transfer._pieces

def pieces(self, end, file):
    global left
    for piece in whole(self, end, file):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        yield piece

copy.Transfer._pieces = pieces
ends.PIECE_BYTES = client.PIECE_BYTES = 1 << 12
copy.copy(sys.argv[1], sys.argv[2], files_at_once=2)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """The environment in which clients find an S3 server."""
    with moto() as port:
        yield s3_environment(port)


@pytest.fixture
def prefix(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an empty prefix."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/corpus"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Several shards, rejected records, a validation subset and two plans."""
    folder = tmp_path_factory.mktemp("copied")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
        write_corpus(folder / "data", num_files=2, per_file=300)
        with open(folder / "data" / "bad.jsonl", "w") as file:
            file.write('{"text": "a"}\n{"no": 1}\n')
        tokenmill.build(
            folder / "data", tokenizer_path, folder / "out",
            workers=1, max_bad=0.5, validation=0.2,
        )  # fmt: skip
    for length in (64, 128):
        tokenmill.pack(folder / "out", sequence_length=length)
    return folder / "out"


@pytest.fixture
def copied(dataset: Path, tmp_path: Path) -> Path:
    """A dataset of one's own, to be damaged."""
    return Path(shutil.copytree(dataset, tmp_path / "own"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but those of a workspace."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in names.items() if name[:5] != "work/"}


def test_a_copy_in_a_folder_is_the_same(dataset: Path, tmp_path: Path) -> None:
    report = tokenmill.copy(dataset, tmp_path / "to" / "copy")
    assert contents(tmp_path / "to" / "copy") == contents(dataset)
    assert report.copied_files == report.files == len(contents(dataset)) - 4
    assert (report.plans, tokenmill.verify(tmp_path / "to" / "copy").plans) == (2, 2)


def test_there_and_back_through_a_bucket_is_the_same(
    dataset: Path, prefix: str, tmp_path: Path
) -> None:
    tokenmill.copy(dataset, prefix, verify=True)
    tokenmill.copy(prefix, prefix + "-again")
    tokenmill.copy(prefix + "-again", tmp_path / "back", verify=True)
    assert contents(tmp_path / "back") == contents(dataset)


def test_a_second_copy_moves_nothing_and_a_new_plan_only_itself(copied: Path, prefix: str) -> None:
    tokenmill.copy(copied, prefix)
    assert tokenmill.copy(copied, prefix).copied_files == 0
    tokenmill.pack(copied, sequence_length=32)
    report = tokenmill.copy(copied, prefix)
    assert (report.copied_files, report.plans) == (4, 3)


def run_killed(source: str, destination: str, pieces: int) -> bool:
    """Copy in a process that is killed after so many pieces; whether it was."""
    command = [sys.executable, "-c", KILLED_AFTER_PIECES, source, destination, str(pieces)]
    code = subprocess.run(command, check=False, capture_output=True).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.parametrize("way", ["to a folder", "to a bucket", "from a bucket"])
def test_a_killed_copy_is_no_dataset_and_the_next_one_finishes_it(
    way: str, dataset: Path, prefix: str, tmp_path: Path
) -> None:
    source, destination = str(dataset), str(tmp_path / "copy")
    if way == "to a bucket":
        destination = prefix
    if way == "from a bucket":
        tokenmill.copy(dataset, prefix)
        source = prefix
    for pieces in (3, 40):
        assert run_killed(source, destination, pieces)
        with pytest.raises(UserError, match="cannot find a dataset"):
            tokenmill.copy(destination, tmp_path / "nothing")
    report = tokenmill.copy(source, destination)
    assert 0 < report.copied_files < report.files
    tokenmill.copy(destination, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(dataset)
    if way != "to a bucket":
        assert contents(tmp_path / "copy") == contents(dataset)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def first_shard_file(folder: Path, part: str) -> Path:
    names = (file.name for file in read_manifest(folder).shards[1].files)
    return folder / next(name for name in names if name.endswith(part))


DAMAGES: dict[str, Callable[[Path], Path]] = {
    "tokens": lambda folder: first_shard_file(folder, ".bin"),
    "index": lambda folder: first_shard_file(folder, ".idx"),
    "table": lambda folder: first_shard_file(folder, ".parquet"),
    "tokenizer": lambda folder: folder / "tokenizer" / "tokenizer.json",
    "plan": lambda folder: next((folder / "plans").glob("*/starts.npy")),
    "plan.json": lambda folder: next((folder / "plans").glob("*/plan.json")),
    "run": lambda folder: folder / "run.json",
    "manifest": lambda folder: folder / "manifest.json",
}


@pytest.mark.parametrize("change", [flipped, lambda path: path.write_bytes(path.read_bytes()[:-1])])
@pytest.mark.parametrize("part", DAMAGES)
def test_a_damaged_source_is_not_copied(
    part: str, change: Callable[[Path], object], copied: Path, tmp_path: Path
) -> None:
    path = DAMAGES[part](copied)
    change(path)
    with pytest.raises(VerificationError) as caught:
        tokenmill.copy(copied, tmp_path / "copy")
    assert caught.value.where == str(path)
    assert not (tmp_path / "copy" / "manifest.json").exists()


@pytest.mark.parametrize("part", sorted(set(DAMAGES) - {"run", "manifest"}))
def test_a_damaged_object_is_not_copied(
    part: str, copied: Path, prefix: str, tmp_path: Path
) -> None:
    tokenmill.copy(copied, prefix)
    path = DAMAGES[part](copied)
    flipped(path)
    name = path.relative_to(copied).as_posix()
    ends.open_end(prefix, "").store.replace(name, path.read_bytes())
    with pytest.raises(VerificationError) as caught:
        tokenmill.copy(prefix, tmp_path / "copy")
    assert caught.value.where == f"{prefix}/{name}"


@pytest.mark.parametrize("where", ["folder", "bucket"])
@pytest.mark.parametrize("there", ["another dataset", "another copy", "something else"])
def test_a_destination_that_holds_something_else_is_left_as_it_is(
    there: str, where: str, dataset: Path, prefix: str, tmp_path: Path
) -> None:
    destination = prefix if where == "bucket" else str(tmp_path / "copy")
    store = ends.open_end(destination, "").store
    name = {
        "another dataset": "manifest.json",
        "another copy": "copy.json",
        "something else": "notes/mine.txt",
    }[there]
    store.replace(name, b"{}\n")
    with pytest.raises(OutputConflictError, match="the destination is not empty"):
        tokenmill.copy(dataset, destination)
    assert store.read(name) == b"{}\n"
    assert store.read("run.json") is None


@pytest.mark.parametrize("destination", ["", "inside", ".."])
def test_a_dataset_is_not_copied_into_itself(copied: Path, destination: str) -> None:
    """A file that is found damaged at the destination is removed: here, from the source."""
    before = contents(copied)
    with pytest.raises(UserError, match="cannot be copied into itself"):
        tokenmill.copy(copied, copied / destination, verify=True)
    assert contents(copied) == before


def test_another_plan_of_the_same_name_is_kept(copied: Path, tmp_path: Path) -> None:
    tokenmill.pack(copied, name="mine", sequence_length=16)
    tokenmill.copy(copied, tmp_path / "copy")
    before = contents(tmp_path / "copy")
    tokenmill.pack(copied, name="mine", sequence_length=32, overwrite=True)
    with pytest.raises(OutputConflictError, match="the destination is not empty") as caught:
        tokenmill.copy(copied, tmp_path / "copy")
    assert caught.value.why == "plans/mine/plan.json belongs to a different plan"
    assert contents(tmp_path / "copy") == before


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/passwd", "tokens/../../outside", "manifest.json", "copy.json",
     "plans/x/plan.json", "work/job.json", "tokens//x", "tokens/\n", "tokens/a\\b"],
)  # fmt: skip
def test_a_manifest_that_names_other_files_is_refused(
    name: str, copied: Path, prefix: str, tmp_path: Path
) -> None:
    manifest = read_manifest(copied)
    entry = FileEntry(name=name, bytes=0, xxh3_128="99aa06d3014798d86001c324468d497f")
    changed = msgspec.structs.replace(manifest, rejected=[*manifest.rejected, entry])
    write_manifest(copied, changed)
    for destination in (prefix, tmp_path / "copy"):
        with pytest.raises(VerificationError, match="points outside the dataset"):
            tokenmill.copy(copied, destination)
    assert not (tmp_path / "copy").exists()


def test_a_link_out_of_the_source_is_not_followed(copied: Path, tmp_path: Path) -> None:
    path = first_shard_file(copied, ".bin")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(VerificationError):
        tokenmill.copy(copied, tmp_path / "copy")
    assert not (tmp_path / "copy" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        ("nothing", "copy", "cannot find a dataset"),
        ("ftp://host/x", "copy", "a dataset must be on this machine"),
        ("nothing", "https://host/x", "cannot copy to this location"),
    ],
)
def test_places_that_cannot_be_used_are_refused(
    source: str, destination: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        tokenmill.copy(source, destination)


def test_the_command_tells_what_it_did(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenmill.cli import main

    arguments: list[Any] = ["cp", str(dataset), str(tmp_path / "copy")]
    assert main(arguments) == 0
    assert main([*arguments, "--verify"]) == 0
    lines = capsys.readouterr().out.splitlines()
    num_files = len(contents(dataset)) - 4
    size = lines[0].split(", ")[1]
    identity = read_manifest(dataset).dataset_id
    assert lines == [
        f"complete: {num_files} files, {size}, 2 plans (id {identity})",
        f"copied {num_files} files, {size}; 0 already there",
        "",
        f"next: tokenmill verify {tmp_path / 'copy'}",
        f"verified: {num_files} files, {size}, 2 plans (id {identity})",
        f"copied 0 files, 0 B; {num_files} already there",
        "",
        f"next: tokenmill verify {tmp_path / 'copy'}",
    ]

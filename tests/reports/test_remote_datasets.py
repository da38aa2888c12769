"""Datasets in a bucket are verified, shown and planned where they are."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpora import write_corpus

import tokenmill
from cloud_kit.s3 import BUCKET, moto, s3_environment
from conftest import Printed
from tokenmill.cli import main
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.read import units
from tokenmill.store.copying.ends import open_end
from tokenmill.store.manifest import read_manifest


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """The environment in which clients find an S3 server."""
    with moto() as port:
        yield s3_environment(port)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A dataset of several shards with a plan and a validation subset."""
    folder = tmp_path_factory.mktemp("remote")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
        write_corpus(folder / "data", num_files=2, per_file=150)
        (folder / "data" / "z.jsonl").write_text('{"no": 1}\n{"text": "the end"}\n')
        tokenmill.build(
            folder / "data", tokenizer_path, folder / "out",
            workers=1, max_bad=0.5, validation=0.2,
        )  # fmt: skip
    tokenmill.pack(folder / "out", sequence_length=64)
    return folder / "out"


@pytest.fixture
def remote(
    built: Path, server: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """A copy in a bucket. Commands leave nothing in the folder for temporary files."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    location = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    tokenmill.copy(built, location)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    yield location
    assert list((tmp_path / "temporary").iterdir()) == []


def test_verifying_in_a_bucket_counts_what_verifying_on_disk_does(built: Path, remote: str) -> None:
    here = tokenmill.verify(built, against_sources=True)
    there = tokenmill.verify(remote, against_sources=True)
    for name in (
        *("files", "bytes", "documents", "tokens", "plans"),
        *("compared_documents", "decoded_documents"),
    ):
        assert getattr(there, name) == getattr(here, name)


def test_texts_in_a_bucket_are_found_as_on_disk(
    built: Path, remote: str, capsys: Printed, tmp_path: Path
) -> None:
    shown = []
    for place in (str(built), remote):
        assert main(["find", place, "the end", "--plan", "best-fit-64-train", "--json"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert '"match":"the end"' in shown[1]
    assert main(["find", remote, "the end", "--save", str(tmp_path / "view")]) == 2
    assert "a view needs datasets on this machine" in capsys.readouterr().err


def test_parts_in_a_bucket_find_every_damage_once(built: Path, remote: str) -> None:
    manifest = read_manifest(built)
    names = [manifest.shards[-place].files[place].name for place in range(4)]
    names += [manifest.rejected[0].name, "run.json"]
    store = open_end(remote, "").store
    for damaged in ([name for name in names if not name.endswith(".idx")], [names[1]]):
        for name in damaged:
            data = bytearray((built / name).read_bytes())
            data[len(data) // 2] ^= 1
            store.replace(name, bytes(data))
        told = []
        for shard in ("0/2", "1/2"):
            try:
                tokenmill.verify(remote, shard=shard)
            except VerificationError as error:
                told.append(str(error))
        times = 2 if names[1] in damaged else 1  # a plan needs all indexes
        assert [sum(name in text for text in told) for name in damaged] == [times] * len(damaged)
        for name in damaged:
            store.replace(name, (built / name).read_bytes())


def test_a_missing_object_and_a_stranger_are_found(built: Path, remote: str) -> None:
    store = open_end(remote, "").store
    name = read_manifest(built).shards[1].files[3].name
    store.remove([name])
    store.replace("tokens/stranger.bin", b"")
    with pytest.raises(VerificationError) as caught:
        tokenmill.verify(remote)
    assert f"a file of the dataset is missing; {remote}/{name}; it should have" in caught.value.why
    assert "tokens/stranger.bin" in caught.value.why
    assert caught.value.where == remote


def test_a_plan_in_a_bucket_is_the_one_that_is_made_on_disk(
    built: Path, remote: str, tmp_path: Path, capsys: Printed
) -> None:
    local = Path(shutil.copytree(built, tmp_path / "local"))
    arguments = ["--sequence-length", "48", "--name", "mine", "--separate-by", "source"]
    for place in (str(local), remote):
        assert main(["pack", place, *arguments]) == 0
    shown = capsys.readouterr().out
    assert f"next: tokenmill inspect {remote} --plan mine" in shown
    assert main(["pack", remote, *arguments]) == 0
    assert "nothing to do: the plan is complete" in capsys.readouterr().out
    tokenmill.copy(remote, tmp_path / "back")
    for path in (local / "plans" / "mine").iterdir():
        assert (tmp_path / "back" / "plans" / "mine" / path.name).read_bytes() == path.read_bytes()
    assert tokenmill.verify(remote).plans == 2


def test_another_plan_of_the_name_is_kept(built: Path, remote: str, capsys: Printed) -> None:
    name = "best-fit-64-train"
    before = open_end(remote, "").store.read(f"plans/{name}/plan.json")
    arguments = ["pack", remote, "--sequence-length", "48", "--name", name]
    assert main(arguments) == 4
    assert "holds another plan" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 4
    assert "a plan in a bucket cannot be replaced" in capsys.readouterr().err
    assert open_end(remote, "").store.read(f"plans/{name}/plan.json") == before


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--json"],
        ["--document", "7"],
        ["--plan", "best-fit-64-train"],
        ["--plan", "best-fit-64-train", "--sequence", "3"],
    ],
)
def test_what_is_shown_of_a_bucket_is_what_is_shown_of_a_folder(
    arguments: list[str], built: Path, remote: str, capsys: Printed
) -> None:
    shown = []
    for place in (str(built), remote):
        assert main(["inspect", place, *arguments]) == 0
        shown.append(capsys.readouterr().out.replace(place, "HERE"))
    assert shown[0] == shown[1]


def test_a_bucket_without_a_dataset_is_refused(remote: str) -> None:
    with pytest.raises(UserError, match="cannot find a dataset"):
        tokenmill.verify(remote + "-nothing")
    assert main(["inspect", remote + "-nothing"]) == 2

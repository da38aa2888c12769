"""Datasets are deleted from buckets, manifest first; what is not theirs stays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from cloud_kit.s3 import BUCKET, moto, s3_environment
from tokenmill.cli import main
from tokenmill.core.errors import OutputConflictError
from tokenmill.run.journal.agents import new_agent
from tokenmill.run.journal.claims import Claims
from tokenmill.store.cloud.client import Client
from tokenmill.store.deletion import delete, look_at
from tokenmill.store.objects.bucket import BucketStore

DATASET = Path(__file__).parents[1] / "golden" / "v2" / "dataset"
PREFIXES = count()


@pytest.fixture(scope="module")
def moto_port() -> Iterator[int]:
    with moto() as port:
        yield port


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, moto_port: int) -> Client:
    for name, value in s3_environment(moto_port).items():
        monkeypatch.setenv(name, value)
    return Client(f"s3://{BUCKET}/corpus-{next(PREFIXES)}")


@pytest.fixture
def dataset(bucket: Client) -> Client:
    """A dataset with a plan in a bucket."""
    for path in DATASET.rglob("*"):
        if path.is_file():
            bucket.put(path.relative_to(DATASET).as_posix(), path.read_bytes())
    bucket.put("plans/4096/plan.json", b"{}")
    bucket.put("plans/4096/starts.npy", b"rows")
    return bucket


def keys(bucket: Client) -> list[str]:
    return [found.key for found in bucket.list()]


def test_a_dataset_goes_and_strangers_stay(
    dataset: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset.put("tokens/notes.txt", b"mine")
    dataset.put("another/manifest.json", b"another dataset below")
    num_objects = len(keys(dataset))
    assert main(["delete", dataset.location, "--yes"]) == 0
    assert keys(dataset) == ["another/manifest.json", "tokens/notes.txt"]
    output = capsys.readouterr().out.splitlines()
    assert output[0].startswith(f"{dataset.location} holds a dataset (id ")
    assert output[1] == "2 other objects will be kept, such as another/manifest.json"
    assert output[2] == f"deleted {num_objects - 2} objects"


def test_a_deletion_that_was_stopped_is_finished_by_the_next(
    dataset: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = BucketStore.remove
    calls = count()

    def stopped(self: BucketStore, names: list[str]) -> None:
        if next(calls) == 2:  # after the manifest and run.json
            raise KeyboardInterrupt
        remove(self, names)

    holding = look_at(dataset.location)
    with monkeypatch.context() as patch:
        patch.setattr(BucketStore, "remove", stopped)
        with pytest.raises(KeyboardInterrupt):
            delete(holding)
    assert "manifest.json" not in keys(dataset)
    assert look_at(dataset.location).what == "an unfinished deletion"
    delete(look_at(dataset.location))
    assert keys(dataset) == []


def test_an_unfinished_build_goes(bucket: Client) -> None:
    parts = ["receipts/00000000-000000.json", "claims/stream-00000000.0"]
    names = ["work/job.json", *(f"work/{part}" for part in parts), "tokens/00000000-000000.bin"]
    for name in names:
        bucket.put(name, b'{"job": "a", "identity": {"versions": {"tokenmill": "0.1.0"}}}')
    claims = Claims(BucketStore(bucket), new_agent(None), ["00000000-000000"], lambda: 0.0)
    assert claims.take() == "00000000-000000"
    assert look_at(bucket.location).what == "an unfinished build"
    delete(look_at(bucket.location))
    assert keys(bucket) == []


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "tokens/00000.bin", "copy.json", "work/job.json", "work/deleting.json"],
)
def test_what_holds_no_dataset_is_refused(bucket: Client, name: str) -> None:
    bucket.put(name, b"mine")
    with pytest.raises(OutputConflictError, match="cannot find a dataset to delete"):
        look_at(bucket.location)


def test_a_manifest_of_another_program_is_refused(bucket: Client) -> None:
    bucket.put("manifest.json", b'{"format": "another"}')
    bucket.put("work/job.json", b"{}")
    with pytest.raises(OutputConflictError, match="cannot find a dataset to delete"):
        look_at(bucket.location)

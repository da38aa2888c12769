"""Google Cloud Storage, Azure and a network mount: one exam for all."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_races import assert_each_is_won_once, race, race_of_processes

from cloud_kit.azurite import azure_environment, azurite
from cloud_kit.chaos import STORM, Chaos, chaos
from cloud_kit.google import google, google_environment
from cloud_kit.nfs import lossy_mount
from cloud_kit.s3 import BUCKET, moto, s3_environment
from tokenmill.core.errors import StorageError
from tokenmill.store.objects import bucket
from tokenmill.store.objects.opening import open_store, probe

SIXTEEN = [f"racer-{number}" for number in range(16)]
NAMES = [f"work/claims/{number:05d}.0" for number in range(20)]


def assert_keeps_the_contract(location: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Creates are won once, files become objects in one or many parts, listings are complete."""
    patch.setattr(bucket, "SMALL_BYTES", 1_000)
    store = open_store(location)
    assert probe(store) == ""
    assert store.sizes("work") == {}
    assert_each_is_won_once(race(lambda: store, SIXTEEN, NAMES), NAMES)
    assert sorted(store.sizes("work/claims")) == NAMES
    for name, data in (("0.bin", b"tokens" * (2 << 20)), ("0.idx", b"index"), ("1.bin", b"")):
        (folder / name).write_bytes(data)
        store.add_files({f"tokens/{name}": folder / name})
        assert store.read(f"tokens/{name}") == data
    assert store.sizes("tokens") == {"tokens/0.bin": 12 << 20, "tokens/0.idx": 5, "tokens/1.bin": 0}
    store.replace("work/agents/0.json", b"1")
    store.replace("work/agents/0.json", b"2")
    expected = {"work/agents/0.json": b"2", "work/agents/1.json": None}
    assert dict(store.read_all(expected)) == expected
    store.remove(expected)
    assert store.size("work/agents/0.json") is None


def use(patch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        patch.setenv(name, value)


class TestS3:
    def test_keeps_the_contract(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with moto() as port:
            use(monkeypatch, s3_environment(port))
            assert_keeps_the_contract(f"s3://{BUCKET}/corpus", tmp_path, monkeypatch)


class TestGoogle:
    def test_keeps_the_contract(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with google() as port:
            use(monkeypatch, google_environment(port))
            assert_keeps_the_contract("gs://bucket/corpus", tmp_path, monkeypatch)

    def test_keeps_the_contract_in_a_storm(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with google() as port, chaos(port, Chaos(**STORM)) as storm:
            use(monkeypatch, google_environment(storm.port))
            assert_keeps_the_contract("gs://bucket/corpus", tmp_path, monkeypatch)
        assert all(storm.counted[fault] > 0 for fault in ("busy", "error", "reset", "late"))

    def test_is_refused_where_conditions_are_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with google() as port, chaos(port, Chaos(strip_conditions=True)) as liar:
            use(monkeypatch, google_environment(liar.port))
            with pytest.raises(StorageError, match="cannot build safely in this object store"):
                probe(open_store("gs://bucket/corpus"))


@pytest.mark.cluster
class TestAzure:
    def test_keeps_the_contract(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with azurite(tmp_path / "azurite") as port:
            use(monkeypatch, azure_environment(port))
            assert_keeps_the_contract("az://bucket/corpus", tmp_path, monkeypatch)


@pytest.mark.cluster
class TestNetworkMount:
    def test_keeps_the_contract(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with lossy_mount(tmp_path, 0.3) as mount:
            assert_keeps_the_contract(str(mount / "out"), tmp_path, monkeypatch)

    def test_16_racers_of_4_processes_win_each_of_300_names_once(self, tmp_path: Path) -> None:
        with lossy_mount(tmp_path, 0.3) as mount:
            race_of_processes(str(mount / "out"), num_processes=4, num_threads=4, num_names=300)

"""A bucket as a store: races, storms of faults, lies, and what a killed upload leaves."""

from __future__ import annotations

import http.client
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from memory_store import MemoryStore
from store_races import assert_each_is_won_once, race, race_of_processes

from cloud_kit.chaos import STORM, Chaos, chaos
from cloud_kit.s3 import BUCKET, moto, s3_environment
from tokenmill.core.errors import StorageError, UserError
from tokenmill.store.cloud import client
from tokenmill.store.objects import bucket
from tokenmill.store.objects.bucket import BucketStore
from tokenmill.store.objects.opening import SECOND, open_store, probe

OpenStore = Callable[[int], BucketStore]
SIXTEEN = [f"racer-{number}" for number in range(16)]
NAMES = [f"work/claims/{number:05d}.0" for number in range(300)]
PREFIXES = count()


@pytest.fixture(scope="module")
def moto_port() -> Iterator[int]:
    with moto() as port:
        yield port


@pytest.fixture
def s3_store(monkeypatch: pytest.MonkeyPatch) -> OpenStore:
    """Open the store of a fresh prefix through a port."""

    def opened(port: int) -> BucketStore:
        for name, value in s3_environment(port).items():
            monkeypatch.setenv(name, value)
        store = open_store(f"s3://{BUCKET}/prefix-{next(PREFIXES)}")
        assert isinstance(store, BucketStore)
        return store

    return opened


def finished(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def names_of(store: BucketStore, folder: str) -> list[str]:
    return sorted(store.sizes(folder))


class TestObjects:
    def test_other_bytes_under_a_name_are_refused_before_large_ones_are_sent(
        self,
        s3_store: OpenStore,
        moto_port: int,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(bucket, "SMALL_BYTES", 1_000)
        store = s3_store(moto_port)
        store.create("tokens/0.xxh3", b"digests of another run")
        files = {
            "tokens/0.bin": finished(tmp_path, "0.bin", b"tokens" * 1_000),
            "tokens/0.xxh3": finished(tmp_path, "0.xxh3", b"digests"),
        }
        with pytest.raises(StorageError) as raised:
            store.add_files(files)
        assert str(raised.value) == (
            "an object already exists with different content\n"
            f"  where: {store.location}/tokens/0.xxh3\n"
            "  why: objects of a build never change: either another program wrote it, or two runs "
            "of one unit gave different results\n"
            "  next: choose another prefix, or remove this object and run the same command again"
        )
        assert store.size("tokens/0.bin") is None

    def test_web_servers_cannot_be_written_to(self) -> None:
        with pytest.raises(UserError, match="tokenmill can only read from web servers"):
            open_store("https://127.0.0.1/corpus")


class TestRaces:
    def test_16_threads_win_each_name_once_in_a_storm(
        self, s3_store: OpenStore, moto_port: int
    ) -> None:
        with chaos(moto_port, Chaos(**STORM)) as storm:
            store = s3_store(storm.port)
            wins = race(lambda: store, SIXTEEN, NAMES[:20])
        assert_each_is_won_once(wins, NAMES[:20])
        assert all(storm.counted[fault] > 0 for fault in STORM if fault != "cut")

    def test_large_files_and_listings_pass_through_a_storm(
        self,
        s3_store: OpenStore,
        moto_port: int,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(client, "PART_BYTES", 5 << 20)
        large = finished(tmp_path, "0.bin", random.Random(1).randbytes(16 << 20))
        with chaos(moto_port, Chaos(**STORM, seed=4)) as storm:
            store = s3_store(storm.port)
            for number in range(5):
                store.add_files({f"tokens/{number}.bin": large})
            for _ in range(20):
                assert len(names_of(store, "tokens")) == 5
            assert storm.counted["cut"] > 0
            assert store.read("tokens/0.bin") == large.read_bytes()

    def test_a_conflict_although_nothing_is_there_is_tried_again(
        self, s3_store: OpenStore, moto_port: int
    ) -> None:
        with chaos(moto_port, Chaos(conflict=0.5, seed=2)) as conflicts:
            store = s3_store(conflicts.port)
            for name in NAMES[:20]:
                assert store.create(name, b"mine") == b"mine"
        assert conflicts.counted["conflict"] >= 5

    def test_who_loses_every_answer_still_learns_that_it_won(
        self, s3_store: OpenStore, moto_port: int
    ) -> None:
        with chaos(moto_port, Chaos(late=0.5, seed=3)) as losses:
            store = s3_store(losses.port)
            for name in NAMES[:5]:
                assert store.create(name, b"mine") == b"mine"
                assert store.create(name, b"another's") == b"mine"
        assert losses.counted["late"] >= 5

    @pytest.mark.soak
    @pytest.mark.parametrize("faults", [{}, STORM], ids=["calm", "storm"])
    def test_16_threads_of_4_processes_win_each_of_300_names_once(
        self, s3_store: OpenStore, moto_port: int, faults: dict[str, float]
    ) -> None:
        with chaos(moto_port, Chaos(**faults)) as proxy:
            store = s3_store(proxy.port)
            race_of_processes(store.location, num_processes=4, num_threads=4, num_names=300)


class TestProbe:
    def test_an_honest_store_takes_several_agents_for_four_requests(
        self, s3_store: OpenStore, moto_port: int
    ) -> None:
        with chaos(moto_port) as proxy:
            store = s3_store(proxy.port)
            assert probe(store) == ""
            assert proxy.num_requests == 4
            assert names_of(store, "work") == []

    def test_a_store_that_ignores_conditions_is_refused(
        self, s3_store: OpenStore, moto_port: int
    ) -> None:
        with chaos(moto_port, Chaos(strip_conditions=True)) as liar:
            store = s3_store(liar.port)
            with pytest.raises(StorageError) as raised:
                probe(store)
            assert names_of(store, "work") == []
        assert raised.value.exit_code == 6
        assert str(raised.value) == (
            "cannot build safely in this object store\n"
            f"  where: {store.location}\n"
            "  why: creating an object twice replaced the first one\n"
            "  next: use a store with conditional writes (If-None-Match), such as S3, Google Cloud "
            "Storage, Azure, R2 or MinIO; or build into a folder and copy it with `tokenmill cp`"
        )

    @pytest.mark.parametrize(("removals", "is_refused"), [(1, False), (2, True)])
    def test_an_agent_that_finishes_may_remove_the_work_folder_in_between(
        self, removals: int, is_refused: bool
    ) -> None:
        class Finishing(MemoryStore):
            def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:
                if data == SECOND and self.requests["create"] < 2 * removals:
                    self.objects.clear()
                return super().create(name, data, durable=durable)

        if is_refused:
            with pytest.raises(StorageError, match="cannot build safely"):
                probe(Finishing())
        else:
            assert probe(Finishing()) == ""

    def test_faults_are_not_taken_for_lies(self, s3_store: OpenStore, moto_port: int) -> None:
        with chaos(moto_port, Chaos(**STORM)) as storm:
            for _ in range(10):
                assert probe(s3_store(storm.port)) == ""


class TestSurroundings:
    def test_credentials_that_expired_end_with_code_6_and_show_no_secret(
        self, s3_store: OpenStore, moto_port: int
    ) -> None:
        with chaos(moto_port, Chaos(refuse=(400, "ExpiredToken"))) as gate:
            store = s3_store(gate.port)
            with pytest.raises(StorageError) as raised:
                store.create("work/job.json", b"first")
            gate.refuse = None
            assert store.create("work/job.json", b"first") == b"first"
        assert raised.value.exit_code == 6
        assert "secret" not in str(raised.value)

    def test_listings_may_lag_and_names_are_read_all_the_same(
        self, s3_store: OpenStore, moto_port: int
    ) -> None:
        with chaos(moto_port, Chaos(hide_seconds=60)) as late:
            store = s3_store(late.port)
            store.create("work/receipts/0.json", b"receipt")
            assert store.sizes("work/receipts") == {}
            assert dict(store.read_all(["work/receipts/0.json"])) == {
                "work/receipts/0.json": b"receipt"
            }
            late.hide_seconds = 0
            assert names_of(store, "work/receipts") == ["work/receipts/0.json"]

    def test_an_upload_that_is_killed_leaves_no_object(
        self, s3_store: OpenStore, moto_port: int, tmp_path: Path
    ) -> None:
        large = finished(tmp_path, "0.bin", b"")
        with open(large, "r+b") as file:
            file.truncate(300 << 20)
        with chaos(moto_port, Chaos(slow_ms=100)) as proxy:
            store = s3_store(proxy.port)
            code = (
                "import sys; from pathlib import Path\n"
                "from tokenmill.store.objects.opening import open_store\n"
                "open_store(sys.argv[1]).add_files({'tokens/0.bin': Path(sys.argv[2])})\n"
            )
            with subprocess.Popen([sys.executable, "-c", code, store.location, large]) as upload:
                while proxy.counted["PUT"] < 3:  # the first parts are under way
                    assert upload.poll() is None
                    time.sleep(0.01)
                upload.kill()
            assert store.size("tokens/0.bin") is None
            assert names_of(store, "tokens") == []
        assert unfinished_uploads(moto_port, store.location) == 1


def unfinished_uploads(port: int, location: str) -> int:
    """Of objects at a location; those of other tests are left out."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", f"/{BUCKET}?uploads")
    answer = connection.getresponse().read()
    connection.close()
    prefix = location.removeprefix(f"s3://{BUCKET}/")
    return answer.count(f"<Key>{prefix}/".encode())

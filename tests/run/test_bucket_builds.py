"""Builds into a bucket: alone, by agents, in storms, killed, refused; always equal bytes."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from corpora import built, command, contents, wait_for, write_corpus

from cloud_kit.chaos import STORM, Chaos, chaos
from cloud_kit.s3 import BUCKET, ENVIRONMENT, moto, s3_environment
from tokenmill.store.cloud.client import Client

PREFIXES = count()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, num_files=3, per_file=1000)
    return folder


@pytest.fixture(scope="module")
def clean(corpus: Path, tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of the corpus into a folder."""
    return built(corpus, tokenizer_path, tmp_path_factory.mktemp("clean") / "out")


@pytest.fixture(scope="module")
def moto_port() -> Iterator[int]:
    with moto() as port:
        yield port


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, moto_port: int) -> Client:
    """A fresh prefix of a bucket; this process speaks to the server itself."""
    for name, value in s3_environment(moto_port).items():
        monkeypatch.setenv(name, value)
    return Client(f"s3://{BUCKET}/corpus-{next(PREFIXES)}")


class Builds:
    """Starts builds of one corpus into one place, through a port."""

    def __init__(self, corpus: Path, tokenizer: Path, bucket: Client) -> None:
        self.arguments = ["build", corpus, "--tokenizer", tokenizer, "--out", bucket.location]

    def start(self, port: int, *options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(*self.arguments, "--workers", 1, *options),
            env={**os.environ, **s3_environment(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def agents(self, port: int, number: int) -> list[subprocess.Popen[str]]:
        return [self.start(port, "--agent", f"{index}/{number}") for index in range(number)]

    def run(self, port: int, *options: object) -> tuple[int, str]:
        """Run a build to its end: its exit code, and all that it printed."""
        process = self.start(port, *options)
        output = "".join(process.communicate(timeout=280))
        return process.returncode, output


@pytest.fixture
def builds(corpus: Path, tokenizer_path: Path, bucket: Client) -> Builds:
    return Builds(corpus, tokenizer_path, bucket)


def dataset_in(bucket: Client) -> dict[str, bytes]:
    """Every object of a dataset but run.json, which tells of times and hosts."""
    keys = [found.key for found in bucket.list()]
    assert not [key for key in keys if key.startswith("work/")]
    return {key: data for key, data in bucket.get_many(keys) if key != "run.json" and data}


def ended(agents: list[subprocess.Popen[str]]) -> list[int]:
    """Wait for agents; their exit codes."""
    codes = []
    for agent in agents:
        output = "".join(agent.communicate(timeout=280))
        assert ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in output
        assert agent.returncode in (0, -9), output
        codes.append(agent.returncode)
    return codes


def receipts(bucket: Client) -> int:
    return sum(1 for _ in bucket.list_folder("work/receipts"))


def test_a_bucket_gets_the_bytes_that_a_folder_gets(
    builds: Builds, bucket: Client, clean: Path, moto_port: int
) -> None:
    code, output = builds.run(moto_port)
    assert code == 0, output
    assert dataset_in(bucket) == contents(clean)
    code, output = builds.run(moto_port)
    assert code == 0, output
    assert dataset_in(bucket) == contents(clean)


def test_three_agents_in_a_storm_of_which_one_is_killed_change_no_byte(
    builds: Builds, bucket: Client, clean: Path, moto_port: int
) -> None:
    with chaos(moto_port, Chaos(**STORM)) as storm:
        agents = builds.agents(storm.port, 3)
        wait_for(lambda: receipts(bucket) >= 2, seconds=120)
        agents[1].kill()
        agents.append(builds.start(storm.port, "--agent", "1/3"))
        assert ended(agents) == [0, -9, 0, 0]
        code, output = builds.run(storm.port)
        assert code == 0, output
    assert dataset_in(bucket) == contents(clean)
    drawn = [fault for fault in STORM if storm.counted[fault]]
    assert len(drawn) >= len(STORM) - 2  # of few requests one kind or another may escape


def test_keys_that_listings_show_late_change_no_byte(
    builds: Builds, bucket: Client, clean: Path, moto_port: int
) -> None:
    with chaos(moto_port, Chaos(hide_seconds=3)) as late:
        agents = builds.agents(late.port, 2)
        assert ended(agents) == [0, 0]
        code, output = builds.run(late.port)
        assert code == 0, output
        assert late.counted["hidden"] > 0
    wanted = contents(clean)
    assert dict(bucket.get_many(wanted)) == wanted


def test_a_store_that_ignores_conditions_is_refused_before_work(
    builds: Builds, bucket: Client, moto_port: int
) -> None:
    with chaos(moto_port, Chaos(strip_conditions=True)) as liar:
        code, output = builds.run(liar.port)
    assert code == 6
    assert "cannot build safely in this object store" in output
    assert list(bucket.list()) == []


def test_overwrite_is_refused_and_delete_is_the_way(
    builds: Builds, bucket: Client, clean: Path, moto_port: int
) -> None:
    bucket.put("manifest.json", (clean / "manifest.json").read_bytes())
    code, output = builds.run(moto_port, "--overwrite")
    assert code == 2
    assert "choose another prefix, or remove what is there with tokenmill delete" in output
    assert [found.key for found in bucket.list()] == ["manifest.json"]


def test_credentials_that_expire_end_with_code_6_and_the_build_resumes(
    builds: Builds, bucket: Client, clean: Path, moto_port: int
) -> None:
    with chaos(moto_port) as gate:
        process = builds.start(gate.port)
        wait_for(lambda: receipts(bucket) >= 2, seconds=120)
        gate.refuse = (400, "ExpiredToken")
        output = "".join(process.communicate(timeout=280))
        assert process.returncode == 6, output
        assert "credentials have expired" in output
        assert ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in output
        gate.refuse = None
        code, output = builds.run(gate.port)
        assert code == 0, output
    assert dataset_in(bucket) == contents(clean)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("faults", [{}, STORM], ids=["calm", "storm"])
def test_kills_at_seeded_moments_change_no_byte(
    faults: dict[str, float],
    corpus: Path,
    tokenizer_path: Path,
    clean: Path,
    moto_port: int,
    bucket: Client,
) -> None:
    trials = int(os.environ.get("TOKENMILL_KILLS", "200"))
    moments, kills = random.Random(5), 0
    with chaos(moto_port, Chaos(**faults)) as proxy:
        while kills < trials:
            place = Client(f"s3://{BUCKET}/killed-{next(PREFIXES)}")
            builds, done = Builds(corpus, tokenizer_path, place), False
            while not done:
                agents = builds.agents(proxy.port, 2)
                for agent in agents:
                    try:
                        agent.communicate(timeout=moments.uniform(0, 8))
                    except subprocess.TimeoutExpired:
                        agent.kill()
                        kills += 1
                ended(agents)
                done = place.head("manifest.json") is not None or kills >= trials
            code, output = builds.run(proxy.port)
            assert code == 0, output
            assert dataset_in(place) == contents(clean)
            print(f"{kills} kills")

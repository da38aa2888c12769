"""What goes wrong on one machine of several: its network is cut, its scratch is full, its pids."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from corpora import contents
from slurm_lab import wait_until
from trial import Trial

from cloud_kit.s3 import BUCKET, moto, s3_environment

pytestmark = pytest.mark.cluster

FORWARDER = Path(__file__).with_name("forwarder.py")
TARGET = f"s3://{BUCKET}/corpus"


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with moto() as port:
        yield port


@pytest.fixture
def bucket(server: int) -> Iterator[Any]:
    """An empty bucket, as boto3 sees it."""
    environment = s3_environment(server)
    client = boto3.resource(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
    )
    found = client.Bucket(BUCKET)
    found.objects.delete()
    yield found
    found.objects.delete()


def files_of(bucket: Any) -> dict[str, bytes]:
    """Every object of a dataset but run.json, which tells of times and hosts."""
    found = {each.key.removeprefix("corpus/"): each for each in bucket.objects.all()}
    return {
        name: each.get()["Body"].read()
        for name, each in sorted(found.items())
        if name != "run.json" and not name.startswith("work/")
    }


def receipts(bucket: Any) -> set[str]:
    return {each.key for each in bucket.objects.filter(Prefix="corpus/work/receipts/")}


@contextmanager
def wire(port: int) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A wire to a port: the port of its near end, and its process."""
    command = [sys.executable, str(FORWARDER), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def test_an_agent_without_network_is_replaced_and_comes_back_to_a_finished_dataset(
    bucket: Any, server: int, tmp_path: Path
) -> None:
    """Row 15: requests hang, as they do when packets vanish."""
    trial = Trial(tmp_path / "trial", patience=6)
    with wire(server) as (port, cable):
        cut = trial.agent("--agent", "0/2", out=TARGET, **s3_environment(port))
        others = trial.agent("--agent", "1/2", out=TARGET, **s3_environment(server))
        with cut, others:
            wait_until(lambda: len(receipts(bucket)) >= 4, 120, "four receipts")
            cable.send_signal(signal.SIGSTOP)
            text, _ = others.communicate(timeout=200)
            assert others.returncode == 0, text
            assert cut.poll() is None
            cable.send_signal(signal.SIGCONT)
            text, _ = cut.communicate(timeout=200)
            assert cut.returncode == 0, text
    assert files_of(bucket) == trial.local()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_an_agent_whose_scratch_is_full_ends_and_the_others_go_on(
    bucket: Any, server: int, tmp_path: Path, small_disk: Path
) -> None:
    """Row 21."""
    trial = Trial(tmp_path / "trial", patience=6)
    environment = s3_environment(server)
    full = trial.agent("--agent", "0/2", "--scratch", str(small_disk), out=TARGET, **environment)
    others = trial.agent("--agent", "1/2", out=TARGET, **environment)
    with full, others:
        text, _ = full.communicate(timeout=200)
        assert full.returncode == 6, text
        assert "No space left on device" in text
        text, _ = others.communicate(timeout=200)
        assert others.returncode == 0, text
    assert files_of(bucket) == trial.local()


def test_an_agent_that_sleeps_while_others_publish_wakes_to_a_finished_dataset(
    tmp_path: Path,
) -> None:
    """Row 3: the whole machine stops for a while, and is taken for dead."""
    trial = Trial(tmp_path / "trial", patience=3)
    sleeper, others = (trial.agent("--agent", f"{index}/2") for index in range(2))
    with sleeper, others:
        trial.wait_for_receipts(4)
        machine = [psutil.Process(sleeper.pid), *psutil.Process(sleeper.pid).children(True)]
        for process in machine:
            process.suspend()
        text, _ = others.communicate(timeout=200)
        assert others.returncode == 0, text
        for process in machine:
            process.resume()
        text, _ = sleeper.communicate(timeout=200)
        assert sleeper.returncode == 0, text
    assert contents(trial.out) == trial.local()


def test_agents_that_wait_for_the_last_one_leave_with_it(tmp_path: Path) -> None:
    """Nobody is left behind when one of them has published and swept."""
    trial = Trial(tmp_path / "trial", delay=0, num_files=3)
    agents = [trial.agent("--agent", f"{index}/3") for index in range(3)]
    for agent in agents:
        text, _ = agent.communicate(timeout=60)
        assert agent.returncode == 0, text
    assert contents(trial.out) == trial.local()


def test_hosts_whose_processes_have_equal_ids_share_a_folder(tmp_path: Path) -> None:
    """Row 19: each agent is the first process of a machine of its own."""
    within = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("process namespaces need unshare and root")
    if subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("process namespaces cannot be made here")
    trial = Trial(tmp_path / "trial")
    agents = [trial.agent("--agent", f"{i}/3", within=within) for i in range(3)]
    wait_until(lambda: len(trial.names("agents")) == 3, 120, "three agents")
    pids = {beat["pid"] for beat in trial.beats().values()}
    for agent in agents:
        text, _ = agent.communicate(timeout=200)
        assert agent.returncode == 0, text
    assert pids == {1}
    assert contents(trial.out) == trial.local()

"""One corpus, a bucket, and a node that dies: on Slurm and on Ray, the bytes of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from corpora import contents
from ray_lab import ray_lab, why_not
from slurm_lab import SlurmLab, wait_until
from test_ray import arguments, finish, started
from trial import SlurmTrial

from tokenmill.cli import main

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def dataset_in(bucket: Any) -> dict[str, bytes]:
    """Every object but run.json, which tells of times and hosts."""
    found = {each.key.removeprefix("corpus/"): each for each in bucket.objects.all()}
    return {
        name: each.get()["Body"].read()
        for name, each in sorted(found.items())
        if name != "run.json"
    }


def has_receipts(bucket: Any, count: int) -> bool:
    return len(list(bucket.objects.filter(Prefix="corpus/work/receipts/"))) >= count


def test_nodes_of_slurm_fill_a_bucket_and_one_of_them_dies(
    slurm: SlurmLab, bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = f"s3://{bucket.name}/corpus"
    trial = SlurmTrial(tmp_path / "trial", slurm=slurm, delay=0.03, num_files=18, target=target)
    array = trial.submit(3)
    wait_until(lambda: has_receipts(bucket, 4), 200, "4 receipts")
    slurm.kill_node("n2")
    slurm.wait_for_end(array)
    assert dataset_in(bucket) == trial.local()


@pytest.mark.skipif(why_not() != "", reason=why_not())
def test_nodes_of_ray_fill_a_bucket_and_one_of_them_dies(bucket: Any, tmp_path: Path) -> None:
    data, local = tmp_path / "data", tmp_path / "local"
    data.mkdir()
    line = '{"text": "' + " ".join(["many words"] * 30) + ' %d"}\n'
    (data / "a.jsonl").write_text("".join(line % number for number in range(20_000)))
    assert main(arguments(data, local)[1:]) == 0
    target: Any = f"s3://{bucket.name}/corpus"
    with ray_lab(num_nodes=3) as lab, started(lab, data, target) as build:
        wait_until(lambda: has_receipts(bucket, 1), 200, "a receipt")
        lab.kill_node(0)
        lab.add_node()
        finish(build)
    assert dataset_in(bucket) == contents(local)

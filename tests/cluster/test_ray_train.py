"""Ray Train: a worker is killed, another number of workers goes on, the batches stay the same."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
from itertools import islice
from pathlib import Path

import psutil
import pytest
from corpora import wait_for
from ray_lab import RayLab, ray_lab, why_not

import tokenmill

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster" / "ray_train.py"
ROWS = 12


def start(lab: RayLab, out: Path, workers: int, steps: int) -> subprocess.Popen[bytes]:
    """The example, as a user runs it."""
    sizes = ["--workers", str(workers), "--steps", str(steps), "--batch-size", str(ROWS)]
    patience = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300"}
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), "--out", str(out), *sizes],
        env={**lab.environment, **patience},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def lines(out: Path) -> list[tuple[int, str]]:
    """The steps that were made, in this order, and the digests of their batches."""
    path = out / "batches.txt"
    rows = path.read_text().splitlines() if path.exists() else []
    return [(int(row.split()[0]), row.split()[1]) for row in rows]


def workers_of(lab: RayLab) -> list[psutil.Process]:
    """The processes that train."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ours = process.environ().get("RAY_AUTH_TOKEN") == lab.token
            if ours and "ray::RayTrainWorker" in process.cmdline()[0]:
                found.append(process)
    return found


def expected(dataset: Path, steps: int) -> dict[int, str]:
    """The digests of the steps of one rank that never stops."""
    loader = tokenmill.open(dataset).loader(global_batch_size=ROWS, epochs=None, labels="next")
    found = {}
    for step, batch in enumerate(islice(loader, steps), 1):
        pairs = zip(batch["input_ids"], batch["labels"], strict=True)
        rows = [
            hashlib.sha256(a.numpy().tobytes() + b.numpy().tobytes()).hexdigest() for a, b in pairs
        ]
        found[step] = hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()[:32]
    return found


def test_batches_outlive_a_killed_worker_and_another_number_of_workers(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    pytest.importorskip("torch", reason="torch is not installed")
    with ray_lab(num_nodes=3) as lab:
        with start(lab, tmp_path, workers=2, steps=60) as training:
            wait_for(lambda: len(lines(tmp_path)) >= 7, 500)
            workers_of(lab)[0].kill()
            assert training.wait(timeout=600) == 0
        steps = [step for step, _ in lines(tmp_path)]
        assert len(steps) > 60, "it was too late to kill anything"
        with start(lab, tmp_path, workers=3, steps=70) as training:
            assert training.wait(timeout=600) == 0
    made = lines(tmp_path)
    assert [step for step, _ in made[-10:]] == [*range(61, 71)]
    assert set(made) == set(expected(tmp_path / "corpus", 70).items())

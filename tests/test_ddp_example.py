"""Training on two ranks, from a bucket, resumes on one rank with the same batches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill
from cloud_kit.s3 import BUCKET, moto, s3_environment
from tokenmill.store.copying.copy import copy_dataset

EXAMPLES = Path(__file__).parents[1] / "examples"
ROWS, STEPS, STOP = 4, 5, 3

pytest.importorskip("torch", reason="the examples need torch")


def test_training_goes_on_with_another_number_of_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [sys.executable, str(EXAMPLES / "corpus.py"), str(tmp_path)]
    folder = Path(subprocess.check_output(made, text=True).strip())
    location = f"s3://{BUCKET}/corpus"
    with moto() as port:
        for name, value in s3_environment(port).items():
            monkeypatch.setenv(name, value)
        copy_dataset(folder, location)
        first = trained(location, tmp_path, ranks=2, stop=STOP)
        rest = trained(location, tmp_path, ranks=1, stop=STEPS)
        alone = trained(location, tmp_path / "alone", ranks=1, stop=STEPS)
    batches = tokenmill.open(folder).batches(global_batch_size=ROWS, epochs=None, labels="next")
    digests = {step + 1: batches.digest(step)[:16] for step in range(STEPS)}
    assert {step: digest for step, (digest, _) in (first | rest).items()} == digests
    assert {step: digest for step, (digest, _) in alone.items()} == digests
    for step, (_, loss) in (first | rest).items():
        assert loss == pytest.approx(alone[step][1], abs=1e-4)


def trained(location: str, folder: Path, ranks: int, stop: int) -> dict[int, tuple[str, float]]:
    """Steps of a run of the example: the ids of their batches, and their losses."""
    arguments = ["--dataset", location, "--cache", str(folder / "cache"), "--out", str(folder)]
    sizes = ["--global-batch-size", str(ROWS), "--steps", str(STEPS), "--interrupt-at", str(stop)]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    finished = subprocess.run(
        [sys.executable, *launcher, str(EXAMPLES / "train_ddp.py"), *arguments, *sizes],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr
    found = re.findall(r"^step (\d+) batch (\w+) loss (\S+)$", finished.stdout, re.MULTILINE)
    return {int(step): (digest, float(loss)) for step, digest, loss in found}

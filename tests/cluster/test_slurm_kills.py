"""Nodes of a Slurm cluster die at seeded moments; whatever is left makes the same dataset.

KILL_TRIALS sets how many trials there are.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from corpora import contents
from slurm_lab import NODES, SlurmLab, wait_until
from trial import SlurmTrial, Trial

pytestmark = pytest.mark.cluster

NUM_TRIALS = int(os.environ.get("KILL_TRIALS", "2"))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The dataset without kills."""
    folder = tmp_path_factory.mktemp("local") / "trial"
    return Trial(folder, num_files=6).local()


@pytest.mark.parametrize("seed", range(NUM_TRIALS))
def test_a_node_dies_at_any_moment(
    slurm: SlurmLab, tmp_path: Path, local: dict[str, bytes], seed: int
) -> None:
    source = random.Random(seed)
    trial = SlurmTrial(tmp_path / "trial", num_files=6, patience=3, slurm=slurm)
    array = trial.submit(3)
    wait_until(lambda: len(slurm.nodes_that_are("alloc")) == 3, 60, "three busy nodes")
    moment, node, whole = source.uniform(0, 20), source.choice(NODES), source.random() < 0.75
    end = time.monotonic() + moment
    wait_until(lambda: time.monotonic() > end or not trial.is_running(array), 60, "the moment")
    done = len(trial.names("receipts"))
    (slurm.kill_node if whole else slurm.kill_daemon)(node)
    if source.random() < 0.5:
        slurm.start_node(node)
    slurm.wait_for_end(array)
    wait_until(lambda: not any(map(slurm.processes_of, NODES)), 120, "the end of zombies")
    what = "node" if whole else "daemon"
    print(f"{seed}: {what} {node} killed after {moment:.1f} s, {done} receipts")
    assert contents(trial.out) == local, trial.logs()

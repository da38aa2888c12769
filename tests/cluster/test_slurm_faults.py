"""Nodes die, daemons die, jobs are cancelled: the dataset is that of one machine without faults."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from corpora import contents
from slurm_lab import SlurmLab, wait_until
from trial import SlurmTrial, edit

pytestmark = pytest.mark.cluster


def test_a_node_that_dies_with_all_its_steps_is_replaced_by_the_others(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    """Row 2, with the patience that the product has."""
    trial = SlurmTrial(tmp_path / "trial", slurm=slurm, delay=0.03, num_files=18)
    array = trial.submit(3)
    trial.wait_for_receipts(4)
    index = next(job["ArrayTaskId"] for job in slurm.jobs(array) if job["NodeList"] == "n2")
    slurm.kill_node("n2")
    killed = time.monotonic()
    (agent,) = (name for name in trial.beats() if name.startswith(f"{int(index):05d}-"))
    lost = trial.undone(trial.claimed_by(agent))
    assert lost
    wait_until(lambda: not trial.undone(lost), 200, f"{lost} to be done by others: {trial.logs()}")
    print(f"{len(lost)} units taken over {time.monotonic() - killed:.1f} s after the kill")
    slurm.wait_for_end(array)
    assert contents(trial.out) == trial.local(), trial.logs()
    requeued = [job["Restarts"] for job in slurm.jobs(array)]
    assert sorted(requeued) == ["0", "0", "1"]


def test_a_zombie_and_the_next_life_of_its_index_work_at_once(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    """Row 3: slurmd dies alone, its job lives on, and Slurm starts the index elsewhere."""
    trial = SlurmTrial(tmp_path / "trial", slurm=slurm, delay=0.05, num_files=24)
    array = trial.submit(2)
    trial.wait_for_receipts(2)
    node = next(job["NodeList"] for job in slurm.jobs(array) if job["ArrayTaskId"] == "1")
    (free,) = {"n1", "n2", "n3"} - {job["NodeList"] for job in slurm.jobs(array)}
    slurm.kill_daemon(node)
    wait_until(lambda: slurm.processes_of(free), 120, f"the index on {free}: {slurm.jobs(array)}")
    indices = [
        {
            process.environ()["SLURM_ARRAY_TASK_ID"]
            for process in slurm.processes_of(name)
            if "SLURM_ARRAY_TASK_ID" in process.environ()
        }
        for name in (node, free)
    ]
    assert indices == [{"1"}, {"1"}]
    slurm.wait_for_end(array)
    wait_until(lambda: not slurm.processes_of(node), 120, "the end of the zombie")
    assert contents(trial.out) == trial.local(), trial.logs()


def test_what_is_cancelled_stops_at_once_and_resumes_with_another_size(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    """Rows 4 and 23: three agents, none, one, two; none waits for those that were cancelled."""
    trial = SlurmTrial(tmp_path / "trial", slurm=slurm, delay=0.03, num_files=18)
    for agents, receipts in ((3, 3), (1, 6), (2, 9)):
        array = trial.submit(agents)
        trial.wait_for_receipts(receipts)
        slurm.run("scancel", array)
        wait_until(
            lambda: not slurm.run("squeue", "--noheader"), 15, "the end of what is cancelled"
        )
        assert {beat["left"] for beat in trial.beats().values()} == {"Interrupted"}
    assert trial.logs().count("resume with the same command") == 6
    array = trial.submit(3)
    slurm.wait_for_end(array)
    assert {job["ExitCode"] for job in slurm.jobs(array)} == {"0:0"}, trial.logs()
    assert contents(trial.out) == trial.local()


def test_an_agent_stops_before_its_time_limit_and_the_next_one_takes_its_claims(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    """Row 23, at the shortest limit that Slurm knows."""
    trial = SlurmTrial(tmp_path / "trial", slurm=slurm, delay=0.2, num_files=18)
    script = trial.scripts(2)[0]
    edit(script, "TERM@120", "TERM@50")
    array = trial.sbatch(script, "--time=1")
    slurm.wait_for_end(array)
    assert {job["ExitCode"] for job in slurm.jobs(array)} == {"143:0"}, trial.logs()
    assert not (trial.out / "manifest.json").exists()
    trial.delay = 0
    started = time.monotonic()
    assert trial.finish() == "COMPLETED"
    print(f"finished {time.monotonic() - started:.1f} s after the time limit")
    assert contents(trial.out) == trial.local()


@pytest.mark.parametrize(
    ("line", "difference"),
    [
        ("EXTRA='--validation 10%'", "read.validation"),
        ("EXTRA='--tokenizer python:python_tokenizers:EndingBytes'", "tokenizer"),
    ],
)
def test_an_agent_with_another_recipe_is_refused_and_the_others_finish(
    slurm: SlurmLab, tmp_path: Path, line: str, difference: str
) -> None:
    """Row 20, on one node of three."""
    trial = SlurmTrial(tmp_path / "trial", slurm=slurm)
    script = trial.scripts(3)[0]
    edit(script, "exec ", f"[ $SLURM_ARRAY_TASK_ID != 1 ] || {{ sleep 8; {line}; }}\nexec ")
    edit(script, "--agent auto", "--agent auto $EXTRA")
    array = trial.sbatch(script)
    slurm.wait_for_end(array)
    codes = {job["ArrayTaskId"]: job["ExitCode"] for job in slurm.jobs(array)}
    assert codes == {"0": "0:0", "1": "8:0", "2": "0:0"}, trial.logs()
    assert "its inputs, options or libraries have changed" in trial.logs()
    assert difference in trial.logs()
    assert contents(trial.out) == trial.local()

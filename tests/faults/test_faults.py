"""Every file-system call may fail, or be the last of its process: nothing wrong looks complete."""

from __future__ import annotations

import errno
import gzip
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpora import contents, random_texts, write_corpus
from fault_kit import KILL, KINDS, Commands, Fault, Job, commands, count_calls, disturb, files

import tokenmill
from hub_kit import parquet, serving

HUB_FILES = {
    f"data/train-{part}-of-2.parquet": parquet(random_texts(30, seed=part)) for part in range(2)
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A folder with a corpus, another one, and a dataset with a plan."""
    folder = tmp_path_factory.mktemp("places")
    plain, streamed = write_corpus(folder / "corpus", num_files=2, per_file=60)
    with open(plain, "a") as file:
        file.write("no JSON\n")
    with gzip.open(streamed.with_suffix(".jsonl.gz"), "wb") as packed:
        packed.write(streamed.read_bytes() * 2)
    streamed.unlink()
    write_corpus(folder / "other", num_files=1, per_file=20)
    for name in ("corpus", "other"):
        tokenmill.build(folder / name, tokenizer_path, folder / f"{name}-built", workers=1,
                        max_bad="1%")  # fmt: skip
    tokenmill.train_tokenizer(folder / "other", folder / "other-trained", vocabulary=300, workers=1)
    dataset = folder / "corpus-built"
    for name, length in (("old", 32), ("plan", 64)):
        tokenmill.pack(dataset, folder=folder / name, sequence_length=length)
    return folder


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with serving() as hub:
        hub.commit("o/n", HUB_FILES)
        with commands(tmp_path_factory.mktemp("here") / "zygote", HF_ENDPOINT=hub.endpoint) as run:
            yield run


def training_jobs(places: Path) -> list[Job]:
    """Training a tokenizer, and replacing one."""

    def train(folder: Path, *options: object) -> list[object]:
        inputs = ["tokenizer", "train", places / "other", "--workers", 1, "--vocabulary", 280]
        return [*inputs, "--out", folder / "T", *options]

    def tokenizer(folder: Path) -> dict[str, bytes] | None:
        return files(folder / "T") if (folder / "T").exists() else None

    replacing = Job(
        "train --overwrite",
        lambda folder: train(folder, "--overwrite"),
        tokenizer,
        prepare=lambda folder: shutil.copytree(places / "other-trained", folder / "T"),
        keeps=True,
    )
    return [Job("train", train, tokenizer, options_again=("--overwrite",)), replacing]


@pytest.fixture(scope="module")
def jobs(places: Path, tokenizer_path: Path) -> dict[str, Job]:
    """Every command that writes."""

    def build(folder: Path, *options: object) -> list[object]:
        inputs = ["build", places / "corpus", "--tokenizer", tokenizer_path]
        return [*inputs, "--out", folder / "out", "--max-bad", "1%", *options]

    def dataset(folder: Path) -> dict[str, bytes] | None:
        return contents(folder / "out") if (folder / "out" / "manifest.json").exists() else None

    def plan(folder: Path) -> dict[str, bytes] | None:
        return files(folder / "plan") if (folder / "plan" / "plan.json").exists() else None

    def pack(folder: Path, *options: object) -> list[object]:
        where = ["--plan-out", folder / "plan", "--sequence-length", 64]
        return ["pack", places / "corpus-built", *where, *options]

    def export(folder: Path) -> list[object]:
        chosen = ["--plan", places / "plan", "--sequences-per-file", 300]
        return ["export", places / "corpus-built", *chosen, "--out", folder / "rows"]

    def rows(folder: Path) -> dict[str, bytes] | None:
        return files(folder / "rows") if (folder / "rows").exists() else None

    def download(folder: Path) -> list[object]:
        inputs = ["build", "hf://datasets/o/n", "--cache-dir", folder / "cache"]
        options = ["--tokenizer", tokenizer_path, "--workers", 1]
        return [*inputs, "--out", folder / "out", *options]

    def copy(source: Path, target: Path) -> None:
        shutil.copytree(source, target)

    made = [
        Job("build", lambda folder: build(folder, "--workers", 1), dataset),
        Job("build with two workers", lambda folder: build(folder, "--workers", 2), dataset),
        Job(
            "build --overwrite",
            lambda folder: build(folder, "--workers", 1, "--overwrite"),
            dataset,
            prepare=lambda folder: copy(places / "other-built", folder / "out"),
            keeps=True,
        ),
        Job(
            "build --overwrite=first",
            lambda folder: build(folder, "--workers", 1, "--overwrite=first"),
            dataset,
            prepare=lambda folder: copy(places / "other-built", folder / "out"),
        ),
        *training_jobs(places),
        Job("cp", lambda folder: ["cp", places / "corpus-built", folder / "out"], dataset),
        Job("pack", pack, plan),
        Job(
            "pack --overwrite",
            lambda folder: pack(folder, "--overwrite"),
            plan,
            prepare=lambda folder: copy(places / "old", folder / "plan"),
            keeps=True,
        ),
        Job("export", export, rows),
        Job("download", download, dataset, disturbed="cache"),
    ]
    return {job.name: job for job in made}


SAMPLED: dict[str, list[tuple[str, int]]] = {
    "build": [(kind, errno.EIO) for kind in KINDS if kind not in ("link", "truncate")],
    "build with two workers": [("write", errno.EIO), ("rename", KILL), ("fsync", errno.ENOSPC)],
    "build --overwrite": [("unlink", KILL), ("rename", KILL), ("write", errno.EIO)],
    "build --overwrite=first": [("unlink", KILL)],
    "train": [("rename", KILL)],
    "train --overwrite": [("unlink", KILL)],
    "cp": [("link", KILL)],
    "pack": [("flock", errno.ENOLCK), ("rename", errno.EIO)],
    "pack --overwrite": [("rename", KILL), ("unlink", KILL)],
    "export": [("unlink", errno.EIO), ("close", errno.EIO)],
    "download": [("write", errno.ENOSPC), ("link", KILL)],
}


@pytest.mark.parametrize("name", SAMPLED)
def test_a_call_of_any_kind_may_fail_and_the_next_run_makes_the_same_bytes(
    name: str, here: Commands, jobs: dict[str, Job], tmp_path: Path
) -> None:
    job = jobs[name]
    expected, calls = count_calls(here, job, tmp_path / "counted")
    for kind, code in SAMPLED[name]:
        fault = Fault(kind, calls.count(kind) // 2 + 1, code)
        outcome = disturb(here, job, tmp_path / "trial", fault, expected)
        assert outcome.fired


@pytest.mark.parametrize("name", ["build", "pack", "export"])
def test_a_read_that_fails_is_a_storage_error(
    name: str, here: Commands, jobs: dict[str, Job], places: Path, tmp_path: Path
) -> None:
    arguments = jobs[name].arguments(tmp_path)
    reads = len(here.run(arguments, places, Fault("read", 0, KILL)).calls)
    for path in tmp_path.iterdir():
        shutil.rmtree(path)
    outcome = here.run(arguments, places, Fault("read", reads // 2, errno.EIO))
    assert outcome.fired
    assert outcome.code == 6, outcome.errors
    assert "a bug" not in outcome.errors


def all_faults(action: str, num_calls: int) -> Iterator[Fault]:
    """Each call fails, or ends its process; or a disk is full from here and there on."""
    for number in range(1, num_calls + 1, 5 if action == "full disk" else 1):
        if action == "full disk":
            yield Fault("any", number, errno.ENOSPC, sticky=True)
        else:
            yield Fault("any", number, KILL if action == "kill" else errno.EIO)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("action", ["error", "kill", "full disk"])
@pytest.mark.parametrize("name", SAMPLED)
def test_each_call_may_fail_and_the_next_run_makes_the_same_bytes(
    name: str, action: str, here: Commands, jobs: dict[str, Job], tmp_path: Path
) -> None:
    job = jobs[name]
    expected, calls = count_calls(here, job, tmp_path / "counted")
    exits: Counter[int] = Counter()
    for fault in all_faults(action, len(calls)):
        outcome = disturb(here, job, tmp_path / "trial", fault, expected)
        exits[outcome.code] += 1
        print(fault, outcome.fired, outcome.code, flush=True)
    print(json.dumps({"job": name, "action": action, "calls": Counter(calls), "exits": exits}))

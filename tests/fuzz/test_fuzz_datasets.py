"""Whatever an attacker writes into a dataset, it ends with a typed error or with ids that exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dataset_trials import judge
from fuzz_kit import SOAK_SECONDS

import tokenmill
from conftest import TEXTS, write_jsonl
from tokenmill.read import units

TRIALS = Path(__file__).with_name("dataset_trials.py")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A dataset of several shards, with ranges without loss, a kept column and two plans."""
    folder = tmp_path_factory.mktemp("whole")
    texts = [TEXTS[i % len(TEXTS)] * (1 + i % 4) for i in range(120)]
    columns = {"mask": [[[0, 1]]] * 120, "lang": ["en", None] * 60}
    path = write_jsonl(folder / "a.jsonl", texts, **columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 1 << 12)
        patch.setattr(units, "PIECE_BYTES", 1 << 12)
        out = folder / "dataset"
        options = {"no_loss": "mask", "keep": ["lang"], "validation": 0.2}
        tokenmill.build(path, tokenizer_path, out, workers=1, **options)
        tokenmill.pack(out, name="a", sequence_length=32, long_documents="sliding-window",
                            overlap=2)  # fmt: skip
        tokenmill.pack(out, name="buckets", sequence_length=64, packing="length-buckets",
                            smallest_bucket=16)  # fmt: skip
    return out


def run_trials(whole: Path, work: Path, first: int, count: int, seconds: int = 10**6) -> None:
    """Run trials in a process of their own, which may die; prints how they ended."""
    command = [sys.executable, TRIALS, whole, work, first, count, seconds]
    found = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    lines = found.stdout.splitlines()
    ends, faults = judge(lines)
    print(dict(ends))
    assert found.returncode == 0, f"died at {lines[-1:]}: {found.stderr[-2000:]}"
    assert faults == []


def test_a_few_hostile_datasets(whole: Path, tmp_path: Path) -> None:
    run_trials(whole, tmp_path, 0, 15)


@pytest.mark.soak
def test_hostile_datasets_for_minutes(whole: Path, tmp_path: Path) -> None:
    run_trials(whole, tmp_path, 1000, 10**9, SOAK_SECONDS)

"""The examples do what they say: losses fall, and a stop does not change them."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tokenmill

if TYPE_CHECKING:
    from model import GPT

EXAMPLES = Path(__file__).parents[1] / "examples"
STEPS, STOP = 6, 4

torch = pytest.importorskip("torch", reason="the examples need torch")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> GPT:
    """The examples' model, very small and in float64."""
    monkeypatch.syspath_prepend(EXAMPLES)
    from model import GPT, GPTConfig

    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=50, num_layers=2, width=32)).double()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small dataset of the examples."""
    folder = tmp_path_factory.mktemp("examples")
    return Path(run("corpus.py", str(folder)).strip())


@pytest.fixture(scope="module")
def curve(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The losses of train.py without a stop."""
    return losses("train.py", dataset, tmp_path_factory.mktemp("train") / "out")


def test_training_goes_on_with_the_same_losses(
    dataset: Path, curve: dict[int, str], tmp_path: Path
) -> None:
    assert falls(curve)
    assert stopped_and_resumed("train.py", dataset, tmp_path / "out") == curve


def test_exported_rows_give_the_losses_of_the_loader(
    dataset: Path, curve: dict[int, str], tmp_path: Path
) -> None:
    assert stopped_and_resumed("train_from_pt.py", dataset, tmp_path / "out") == curve


def test_trainer_goes_on_with_the_same_losses(dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    whole = losses("train_with_trainer.py", dataset, tmp_path / "whole")
    assert falls(whole)
    assert stopped_and_resumed("train_with_trainer.py", dataset, tmp_path / "stopped") == whole


def test_the_model_keeps_documents_in_a_row_apart(model: GPT) -> None:
    first, second = torch.arange(1, 8)[None], torch.arange(20, 25)[None]
    positions = [torch.arange(7)[None], torch.arange(5)[None]]
    packed = model(torch.cat([first, second], 1), torch.cat(positions, 1))
    alone = torch.cat([model(first, positions[0]), model(second, positions[1])], 1)
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-12)


def test_micro_batches_do_not_change_what_is_learned(model: GPT) -> None:
    from training import train_step

    ids = torch.randint(50, (4, 8))
    labels = ids.roll(-1, 1)
    labels[0, 1:] = labels[3, 4:] = -100  # so that parts differ in what they are trained on
    positions = torch.arange(8).repeat(4, 1)
    batch = {"input_ids": ids, "labels": labels, "position_ids": positions}
    results = []
    for count in (1, 4):
        copied = copy.deepcopy(model)
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
        parts = tokenmill.micro_batches(batch, count)
        loss = train_step(copied, optimizer, parts, int((labels >= 0).sum()))
        results.append((loss, list(copied.parameters())))
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_the_notebook_runs_and_shows_no_place_of_this_machine(tmp_path: Path) -> None:
    for package in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    committed = EXAMPLES / "walkthrough.ipynb"
    rerun = Path(shutil.copy(committed, tmp_path))
    run("run_notebook.py", str(rerun))
    for path in (committed, rerun):
        assert path.stat().st_size < 400_000
        shown = "\n".join(texts(json.loads(path.read_text(encoding="utf-8"))))
        assert "the same to the bit: True" in shown
        assert not re.search(r"/(home|root|tmp|usr|var|opt|work)/", shown)
        assert "Traceback" not in shown


def texts(value: object, name: str = "") -> Iterator[str]:
    """All texts in a notebook but its pictures."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from texts(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, name)
    elif isinstance(value, str) and name != "image/png":
        yield value


def stopped_and_resumed(script: str, dataset: Path, out: Path) -> dict[int, str]:
    """The losses of a run that is stopped, and of one that goes on in another process."""
    before = losses(script, dataset, out, "--interrupt-at", str(STOP))
    assert list(before) == list(range(1, STOP + 1))
    after = losses(script, dataset, out)
    assert list(after) == list(range(STOP + 1, STEPS + 1))
    return before | after


def losses(script: str, dataset: Path, out: Path, *more: str) -> dict[int, str]:
    """The losses that an example prints, by step, with all their digits."""
    places = ["--dataset", str(dataset), "--out", str(out)]
    sizes = ["--steps", str(STEPS), "--batch-size", "4", "--micro-batches", "2"]
    printed = run(script, *places, *sizes, *more)
    found = re.findall(r"^step (\d+) loss (\S+)$", printed, re.MULTILINE)
    return {int(step): loss for step, loss in found}


def falls(curve: dict[int, str]) -> bool:
    return float(curve[STEPS]) < float(curve[1]) - 0.2


def run(script: str, *arguments: str) -> str:
    """What an example prints, run as a user would; on one thread, so as not to wait for cores."""
    finished = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout

"""The example in JAX resumes with the weights and the batches of an undisturbed run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from test_examples import dataset, run

__all__ = ["dataset"]  # the fixture

pytestmark = pytest.mark.cluster
pytest.importorskip("jax", reason="jax is not installed (make cluster does)")


def losses(folder: Path, dataset: Path, *more: str) -> list[str]:
    """What the example prints."""
    arguments = ["--dataset", str(dataset), "--out", str(folder), "--steps", "20", *more]
    return re.findall(r"^step .*$", run("train_in_jax.py", *arguments), re.MULTILINE)


def test_jax_goes_on_with_the_same_losses(dataset: Path, tmp_path: Path) -> None:
    whole = losses(tmp_path / "whole", dataset)
    stopped = losses(tmp_path / "stopped", dataset, "--interrupt-at", "7")
    resumed = losses(tmp_path / "stopped", dataset)
    assert [*stopped, *resumed] == whole
    assert float(whole[-1].split()[-1]) < float(whole[0].split()[-1])

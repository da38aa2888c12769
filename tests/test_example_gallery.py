"""Examples with other trainers, and of tokenizers, do what they say; README lists every example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from test_examples import EXAMPLES, dataset, falls, run, stopped_and_resumed

__all__ = ["dataset"]  # the fixture


def test_lightning_goes_on_with_the_same_losses(dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    curve = stopped_and_resumed("train_with_lightning.py", dataset, tmp_path)
    assert falls(curve)


def test_larger_vocabularies_need_fewer_tokens(tmp_path: Path) -> None:
    printed = run("train_tokenizers.py", "--out", str(tmp_path))
    ratios = re.findall(r"vocabulary-(\d+): (\S+) bytes a token", printed)
    assert [int(size) for size, _ in ratios] == [512, 1024, 4096]
    assert sorted(ratios, key=lambda each: float(each[1])) == ratios


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("cluster/*")]:
        assert f"({path.relative_to(EXAMPLES)})" in listed or path.name == "run_notebook.py"

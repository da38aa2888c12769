"""Runs of spaces that are tokens, by ordinary merges."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenmill.vocabulary.bpe.space_runs import run_merges
from vocabulary.training.training_kit import TEXTS, counted, loaded, trained

CODE = ["def f():\n    if x:\n            return 1\n                        y = 2\n" + "  " * 40]


def test_seven_spaces_are_merged_from_powers_of_two() -> None:
    merges = [(2, 1), (1, 1), (2, 2), (4, 1), (4, 2), (4, 3)]
    assert sorted(run_merges(7)) == sorted(merges)
    assert run_merges(7)[:2] == [(1, 1), (2, 2)]
    assert run_merges(1) == []


@pytest.mark.parametrize("longest", [3, 24])
@pytest.mark.parametrize("split", ["gpt2", "llama3"])
def test_every_run_is_one_token(longest: int, split: str, tmp_path: Path) -> None:
    counts = counted(tmp_path / "counts", {"": [*TEXTS, *CODE]}, split)
    report = trained(tmp_path / "T", counts, vocabulary=400, whitespace_runs=longest)
    tokenizer = loaded(report)
    for length in range(2, longest + 1):
        assert tokenizer.encode(" " * length).tokens == ["Ġ" * length]
        assert tokenizer.encode("a" + " " * length + " x").tokens[1] == "Ġ" * length
    assert tokenizer.get_vocab_size() == 400
    assert "tokenizer.tiktoken" in {file.name for file in report.training.files}

"""What a build and `inspect` say about unknown tokens, and about memory."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.cli.summary import memory_text
from tokenmill.store.manifest import Attempt, Run


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """It knows two words."""
    vocabulary = {"<unk>": 0, "<eos>": 1, "known": 2, "word": 3}
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(["<unk>", "<eos>"])
    made.save(str(tmp_path / "words.json"))
    return tmp_path / "words.json"


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["known word", "known other words"], "     unknown  2 unknown tokens, 28.57% of all"),
        (["known word"], None),
    ],
)
def test_unknown_tokens_are_in_the_summary_and_in_inspect(
    texts: list[str], line: str | None, tokenizer: Path, tmp_path: Path, capsys: Printed
) -> None:
    corpus, out = write_jsonl(tmp_path / "texts.jsonl", texts), tmp_path / "out"
    command = ["build", corpus, "--tokenizer", tokenizer, "--out", out, "--workers", 1]
    assert main([*map(str, command), "--eos", "<eos>"]) == 0
    summary = capsys.readouterr().out
    assert main(["inspect", str(out)]) == 0
    inspected = capsys.readouterr().out
    if line is None:
        assert "unknown token" not in summary + inspected
        return
    assert line in summary.splitlines()
    assert line[1:] in inspected.splitlines()


def test_the_budget_is_beside_the_peak_for_machines(
    tokenizer: Path, tmp_path: Path, capsys: Printed
) -> None:
    corpus = write_jsonl(tmp_path / "texts.jsonl", ["known word"])
    command = ["build", corpus, "--tokenizer", tokenizer, "--out", tmp_path / "out"]
    options = ["--eos", "<eos>", "--workers", "1", "--memory", "700MB", "--json"]
    assert main([*map(str, command), *options]) == 0
    finished = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert finished["memory_bytes"] == 700_000_000
    assert finished["peak_bytes"] > 0


@pytest.mark.parametrize(
    ("peak", "text"),
    [
        (600_000_000, "600 MB at most"),
        (
            667_000_000,
            "667 MB at most, 67 MB (11%) more than the 600 MB of --memory, "
            "which is not a hard limit",
        ),
    ],
)
def test_it_is_said_by_how_much_the_budget_was_passed(peak: int, text: str) -> None:
    begun = {"started": "", "workers": 1, "max_bad": 0.0, "on_bad_file": "fail"}
    attempts = [Attempt(memory_bytes=size, **begun) for size in (10**9, 600_000_000)]  # type: ignore[arg-type]
    run = msgspec.structs.replace(RUN, attempts=attempts)
    assert memory_text(peak, run) == text


RUN = Run(
    recipe={}, identity={}, inputs=[], host="", versions={}, engine="", audited_documents=0,
    calibrated_texts=0, attempts=[], seconds={}, peak_bytes=0,
)  # fmt: skip

"""What a build and `inspect` say about unknown tokens, and about memory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

import tokenmill
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


def test_a_build_shows_what_it_reads_and_six_lines_that_matter(
    tokenizer: Path, tmp_path: Path, capsys: Printed
) -> None:
    corpus, out = tmp_path / "texts.jsonl", tmp_path / "out"
    corpus.write_text('{"text": "known word"}\n{"text": ""}\n{"text": 3}\n')
    command = ["build", corpus, "--tokenizer", tokenizer, "--out", out, "--workers", 1]
    command += ["--eos", "<eos>", "--max-bad", "50%", "--memory", "100GB"]
    assert main([*map(str, command)]) == 0
    shown, said = capsys.readouterr()
    assert said == (
        f"     reading  1 file, 48 B, with {tokenizer} (4 ids; end of document: id 1, from --eos)\n"
    )
    dataset = tokenmill.open(out)
    lines = re.sub(r"\d[\d.,e-]* (?=s:|documents,|tokens and|k?B of)", "N ", shown).splitlines()
    assert lines == [
        "",
        "   documents  1 of 3 records, 1 empty",
        f"      tokens  3 in {out} (id {dataset.manifest.dataset_id})",
        f"    rejected  1: text-not-a-string 1, listed in {out}/rejected",
        "   exactness  every document compared with the reference tokenizer: all equal",
        f"       speed  N s: N documents, N tokens and N {UNIT.search(shown)[1]} of text a second",  # type: ignore[index]
        "",
        f"next: tokenmill verify {out}",
        f"  or: tokenmill inspect {out}",
    ]
    assert main([*map(str, command), "--verbose", "--overwrite"]) == 0
    shown, said = capsys.readouterr()
    assert "     workers  1 (--workers)\n" in said
    assert "\n  bottleneck  " in shown


def test_one_line_says_that_no_fast_engine_can_be_used(tmp_path: Path, capsys: Printed) -> None:
    corpus = write_jsonl(tmp_path / "texts.jsonl", ["word"])
    command = ["build", corpus, "--tokenizer", "python:python_tokenizers:ByteTokenizer"]
    assert main([*map(str, command), "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "      engine  the tokenizer's own library, because no faster engine gives exactly its "
        "ids; --verbose says why"
    ]


UNIT = re.compile(r"(k?B) of text a second")


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

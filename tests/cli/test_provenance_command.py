"""What a run has given, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import tokenmill_here

import tokenmill
from conftest import write_jsonl


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state after three of four rows, each with a document."""
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", ["Z", "ZZ", "ZZZ", "Z"], lang=["de", "en", "de", "de"])
    options = {"keep": ["lang"], "workers": 1}
    dataset = tokenmill.build("a.jsonl", tokenizer_path, "corpus", **options).dataset
    tokenmill.pack(dataset, name="rows", sequence_length=4, packing="next-fit", max_segments=1)
    batches = dataset.batches("rows", global_batch_size=1, shuffle="none")
    for _ in range(3):
        assert batches.advance() is not None
    Path("state.json").write_text(json.dumps(batches.state_dict()))


def test_what_was_given_is_shown_by_source_and_column() -> None:
    done = tokenmill_here("provenance", "state.json", "--by", "lang")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "       given  9 tokens before step 3, without padding",
        "              9 of them distinct, 0 repeated",
        "   documents  3, 3 of them wholly",
        "      step 0  corpus (plan rows); 1 row in a global batch",
        "",
        "source  plan  rows  epochs  documents  whole documents  distinct tokens  tokens",
        "corpus  rows     3    0.75          3                3                9       9",
        "",
        "input    documents  whole documents  distinct tokens  tokens",
        "a.jsonl          3                3                9       9",
        "",
        "lang  documents  whole documents  distinct tokens  tokens",
        "de            2                2                6       6",
        "en            1                1                3       3",
    ]


def test_figures_are_json_and_the_statement_is_a_new_file() -> None:
    done = tokenmill_here("provenance", "state.json", "--json", "--out", "DATA.md")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    counts = {"documents": 3, "whole_documents": 3, "distinct_tokens": 9, "tokens": 9}
    assert (found["step"], found["amount"]) == (3, counts)
    statement = Path("DATA.md").read_text()
    printed = tokenmill_here("provenance", "state.json", "--markdown")
    assert printed.stdout == statement
    assert statement.startswith("# Training data\n")
    again = tokenmill_here("provenance", "state.json", "--out", "DATA.md")
    assert again.returncode == 4
    assert "the file exists" in again.stderr
    assert Path("DATA.md").read_text() == statement


def test_a_file_that_is_no_state_is_refused() -> None:
    done = tokenmill_here("provenance", "a.jsonl")
    assert done.returncode == 2
    assert "the state is no JSON" in done.stderr

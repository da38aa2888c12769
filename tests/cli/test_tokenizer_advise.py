"""`tokenmill tokenizer advise`: what is printed, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokenmill
from conftest import Printed
from tokenmill.cli import main
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import named_split
from tokenmill.store.counts.folder import CountsManifest, write_counts


def counts_folder(folder: Path) -> Path:
    words = {f" w{i * 7919 % 1000}".encode(): 1 + 1000 // (i + 1) for i in range(1000)}
    groups = {"en": [WordCounts.of(words)], "xx": [WordCounts.of({b" only": 5})]}
    write_counts(folder, CountsManifest(split=named_split("gpt2")), groups)
    return folder


def test_advice_is_printed(capsys: Printed) -> None:
    assert main(["tokenizer", "advise", "--parameters", "1.3B"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split(maxsplit=1) == [
        "model",
        "1,300,000,000 parameters without the vocabulary, hidden size 2,048, two matrices",
    ]
    assert "recommended  30,720 (from 27,801 to 33,053)" in shown
    assert "30,720 *         0.2535      1.016     125.8 M   8.8%  +0.0001" in shown


def test_advice_as_json_has_the_corpus(tmp_path: Path, capsys: Printed) -> None:
    folder = counts_folder(tmp_path / "counts")
    arguments = ["--model", "gpt2", "--on", str(folder), "--sizes", "300", "--weight", "xx=10"]
    assert main(["tokenizer", "advise", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    row = found["sizes"][0]
    weighted = tokenmill.advise_vocabulary(model="gpt2", on=folder, weights={"en": 1, "xx": 10})
    assert weighted.corpus is not None
    assert found["corpus"]["bytes"] == weighted.corpus.num_bytes
    assert (row["size"], row["tokens"]) == (300, weighted.corpus.at(300))
    assert found["model"]["shape"]["name"] == "gpt2"
    assert [approach["followed"] for approach in found["approaches"]].count(True) == 3


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "cannot recommend a vocabulary size without a model"),
        (["--parameters", "many"], "got 'many'; must be a number such as 1.3B, 350M or 1e21"),
        (["--layers", "3"], "the shape of a model needs --hidden-size and --layers"),
        (["--hidden-size", "100", "--layers", "2", "--heads", "3"], "heads must divide"),
        (["--parameters", "1B", "--on", "nowhere"], "cannot find word counts"),
    ],
)
def test_what_cannot_be_advised_is_refused(
    arguments: list[str], what: str, capsys: Printed
) -> None:
    assert main(["tokenizer", "advise", *arguments]) == 2
    assert what in capsys.readouterr().err


def test_a_shape_may_be_spelled_out(capsys: Printed) -> None:
    sizes = ["--hidden-size", "2048", "--layers", "24", "--tied"]
    assert main(["tokenizer", "advise", *sizes]) == 0
    assert "hidden size 2,048, one matrix" in capsys.readouterr().out

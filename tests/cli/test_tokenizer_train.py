"""tokenmill tokenizer train, as a user calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conftest import Printed
from tokenmill.cli import main
from tokenmill.encode.words.splits import SENTENCEPIECE_SPLITS, SPLITS


def test_a_corpus_becomes_a_tokenizer(tmp_path: Path, capsys: Printed) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "aaab aaab aab"}\n{"text": "aab b"}\n')
    out = tmp_path / "T"
    command = ["tokenizer", "train", str(corpus), "--out", str(out), "--workers", "1"]
    assert main([*command, "--vocabulary", "260", "--sizes", "258,259"]) == 0
    assert "18 B, 5 words, 5 of them unique" in capsys.readouterr().out
    assert (out / "258" / "tokenizer.json").is_file()
    assert main([*command, "--vocabulary", "260"]) == 4
    assert "already holds a trained tokenizer" in capsys.readouterr().err
    assert main([*command, "--vocabulary", "260", "--overwrite", "--json"]) == 0
    training = json.loads(capsys.readouterr().out)
    assert [entry["vocabulary"] for entry in training["sizes"]] == [260]
    assert training["notes"] == []
    assert not (out / "258").exists()


def test_weighted_counts_say_that_they_are_weighted(tmp_path: Path, capsys: Printed) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "a b", "l": "de"}\n{"text": "c", "l": "en"}\n')
    command = ["tokenizer", "train", str(corpus), "--out", str(tmp_path / "T"), "--workers", "1"]
    command += ["--vocabulary", "257", "--by", "l", "--weight", "de=2"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "7 B, 5 words after weighting, 3 of them unique\n" in out
    assert "\nvocabulary  weighted tokens  per counted word  " in out


def test_a_longest_token_of_spaces_is_visible(tmp_path: Path, capsys: Printed) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "a' + " " * 24 + 'b"}\n')
    command = ["tokenizer", "train", str(corpus), "--out", str(tmp_path / "T"), "--workers", "1"]
    assert main([*command, "--vocabulary", "300", "--whitespace-runs", "8"]) == 0
    assert f"  longest  23 characters; '{' ' * 23}' '" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["count", "train"])
def test_the_help_names_every_split(command: str, capsys: Printed) -> None:
    assert main(["tokenizer", command, "--help"]) == 0
    shown = re.split(r"[\s,;():]+", capsys.readouterr().out)
    assert {*SPLITS, *SENTENCEPIECE_SPLITS} <= {*shown}

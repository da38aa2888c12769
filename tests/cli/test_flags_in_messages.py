"""Messages about flags name the flags; messages about a recipe name its options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokenmill
from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import UserError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "build a.jsonl --out out",
            "tokenmill: --tokenizer: is missing\n"
            "  next: add it, for example: --tokenizer tokenizer.json; tokenmill build --help shows "
            "the options\n",
        ),
        (
            "build",
            "tokenmill: the recipe has 3 problems\n"
            "  why: INPUT: is missing\n"
            "       --tokenizer: is missing\n"
            "       --out: is missing\n"
            "  next: add them, for example: data/*.jsonl --tokenizer tokenizer.json --out corpus/; "
            "tokenmill build --help shows the options\n",
        ),
        (
            "build a.jsonl --tokenizer t.json --out out --packing next-fit",
            "tokenmill: --sequence-length: is missing; the other pack options need it\n"
            "  next: add it, for example: --sequence-length 4096; tokenmill build --help shows the "
            "options\n",
        ),
        (
            "build a.jsonl --tokenizer t.json --out out --sequence-length 4k --export-format npy",
            "tokenmill: --export-out: is missing\n"
            "  next: add it, for example: --export-out rows/; tokenmill build --help shows the "
            "options\n",
        ),
        (
            "build a.jsonl --tokenizer t.json --out out --sequence-length 8 --weight-by source_ "
            "--weight a=1 --separate-by lang",
            "tokenmill: the recipe has 2 problems\n"
            "  why: --separate-by: 'lang' is not kept; add it to --keep\n"
            "       --weight-by: 'source_' is not kept; add it to --keep\n"
            "  next: tokenmill build --help-all lists every option\n",
        ),
        (
            "build a.jsonl --tokenizer t.json --out out --sequence-length 8 --cut-cost 3",
            "tokenmill: --cut-cost: needs --packing order-preserving; it is best-fit\n"
            "  next: tokenmill build --help-all lists every option\n",
        ),
        (
            "build a.jsonl --tokenizer t.json --out out --set pack.packing=next-fit",
            "tokenmill: pack.sequence_length: is missing; the other pack options need it\n"
            "  next: add it, for example: --sequence-length 4096; tokenmill build --help shows the "
            "options\n",
        ),
    ],
)
def test_what_is_wrong_with_flags_is_said_in_flags(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    assert capsys.readouterr() == ("", message)


def test_4k_is_a_sequence_length_everywhere(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["one two"])
    out = tmp_path / "out"
    command = ["build", path, "--tokenizer", tokenizer_path, "--out", out, "--workers", 1]
    assert main([*map(str, command), "--set", "pack.sequence_length=1k"]) == 0
    assert main(["pack", str(out), "--sequence-length", "2k"]) == 0
    assert main(["analyze", str(out), "--sequence-lengths", "1K,4096"]) == 0
    plans = sorted(path.name for path in (out / "plans").iterdir())
    assert plans == ["best-fit-1024", "best-fit-2048"]


def test_a_separator_may_be_written_with_escapes(tmp_path: Path, tokenizer_path: Path) -> None:
    texts = tmp_path / "a.txt"
    texts.write_text("one\n---\ntwo\n---\nthree")
    for number, separator in enumerate((r"\n---\n", "\n---\n")):
        out = tmp_path / str(number)
        command = ["build", texts, "--tokenizer", tokenizer_path, "--out", out, "--workers", 1]
        assert main([*map(str, command), "--format", "text", "--separator", separator]) == 0
        assert tokenmill.open(out).num_documents == 3


def test_an_option_is_named_as_its_user_wrote_it(tmp_path: Path, capsys: Printed) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("inputs: a\ntokenizer: t\nout: o\nresources: {workers: 0}\n")
    assert main(["build", "--config", str(path), "--max-bad", "few"]) == 2
    error = capsys.readouterr().err
    assert "\n  why: --max-bad: got 'few'; " in error or "\n       --max-bad: got" in error
    assert "resources.workers: got 0; must be a whole number, at least 1" in error
    assert f"the recipe has 2 problems\n  where: {path}\n" in error
    assert main(["build", "--config", str(path), "--workers", "few"]) == 2
    assert "where" not in capsys.readouterr().err
    assert main(["build", "--config", str(path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["where"] == str(path)
    assert main(["build", "--config", str(path), "--max-bad", "few", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["why"].splitlines() == [
        "resources.workers: got 0; must be a whole number, at least 1, or none",
        "--max-bad: got 'few'; must be a number such as 0.001 or 0.1%",
    ]
    with pytest.raises(UserError, match="the recipe has 2 problems") as caught:
        tokenmill.recipe("a", "t", "o", workers=0, packing="next-fit", max_bad="few")
    assert caught.value.why.startswith("workers: got 0; ")
    with pytest.raises(UserError) as caught:
        tokenmill.recipe("a", "t", "o", sequence_length=8, cut_cost=3)
    assert caught.value.why == "cut_cost: needs packing order-preserving; it is best-fit"

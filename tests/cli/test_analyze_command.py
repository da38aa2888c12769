"""`tokenmill analyze`: what it prints, as text, JSON and CSV."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import tokenmill
from conftest import Printed, write_jsonl
from tokenmill.cli import main


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("analyze")
    path = write_jsonl(folder / "a.jsonl", ["a b", "a b c d", "a b c d e f g h"])
    tokenmill.build(path, tokenizer_path, folder / "out", workers=1)
    return folder / "out"


def test_a_dataset_is_shown_with_everything(dataset: Path, capsys: Printed) -> None:
    arguments = ["--sequence-lengths", "8,16", "--layers", "2", "--hidden-size", "128"]
    arguments += ["--tokens-per-batch", "16", "--activation-memory", "1MB"]
    assert main(["analyze", str(dataset), *arguments]) == 0
    out = capsys.readouterr().out
    assert out.replace(str(dataset), "DATASET") == EXPECTED


EXPECTED = """\
   corpus  DATASET
documents  3 documents with 27 tokens
  lengths  4 to 15 tokens, 9.0 on average
    model  custom: 2 layers of 128, 1 heads, 1 key/value heads
    state  8 MB in training: 524,928 parameters, without a vocabulary, with Adam's state
    batch  16 tokens

lengths in tokens, shares of documents and of tokens

 4 to 7   33.3%  14.8%
8 to 15   66.7%  85.2%

percentile  1  5  10  25  50  75  90  95  99
documents   4  4   4   4   8  15  15  15  15
tokens      4  4   4   8  15  15  15  15  15

length  documents cut  their tokens  from start  sequences    fill  alone  masked
8           1 (33.3%)         55.6%       74.1%          4  84.38%  84.4%     75%
16 *         0 (0.0%)          0.0%      100.0%          2  84.38%  56.2%     60%

length     dense    masked  other FLOPs  activations  + scores  KV cache  rows  steps  fit  passes
8       7.86e+05  5.93e+05            -        98 kB     256 B      8 kB     2      2   10       1
16 *    1.57e+06  9.37e+05            -       197 kB      1 kB     16 kB     1      2    5       1

note  from start: share of tokens in the same sequence as the start of their document
note  fill: packed with best-fit; alone: with one document, or part of one, per row
note  masked: attention inside documents, as a share and in FLOPs; dense: over whole rows
note  FLOPs: of one epoch, forward and backward; memory: of one row, 2 bytes per number
note  + scores: added by kernels that store attention scores; KV cache: during inference
note  rows: per batch; steps: per epoch
note  fit: rows that fit in --activation-memory; passes: per step on one device

recommended: sequences of 16 tokens (*)
- 16 is the shortest of these lengths that cuts at most 5% of the documents: it cuts 0.0% of the \
documents, with 0.0% of the tokens
- 8 would cut 33.3% of the documents; 74.1% of the tokens would see their document from its start \
(100.0% with 16); attention would take 0.63 times the FLOPs inside documents, and 0.50 times over \
whole rows
- with best-fit packing, 15.62% of the rows is padding; with one document per row, 43.8% is, and \
there are 1.5 times as many rows
- attention inside documents takes 60% of the FLOPs of attention over whole rows
- for custom, a row needs 197 kB for activations; a kernel that stores attention scores adds 1 kB \
(0.0 times as much), and four times that at twice the length
- a batch of 16 tokens is 1 row with 2 documents or parts of them; an epoch has 2 steps. If you \
double the length, halve the rows: the tokens and activations of a batch stay the same, and only \
attention grows
- the memory for activations holds 5 rows: one device needs 1 gradient accumulation step a batch
"""


def test_json_and_csv_hold_the_same_figures(dataset: Path, capsys: Printed) -> None:
    arguments = ["analyze", str(dataset), "--sequence-lengths", "8,16", "--model", "gpt2"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main([*arguments, "--csv"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [line["sequence_length"] for line in lines] == ["8", "16"]
    for line, rows, costs in zip(lines, found["rows"], found["costs"], strict=True):
        chosen = rows["sequence_length"] == found["recommendation"]["sequence_length"]
        values = rows | costs | {"recommended": int(chosen)}
        assert line == {name: "" if v is None else str(v) for name, v in values.items()}


def test_no_length_is_recommended_if_none_fits_into_the_memory(
    dataset: Path, capsys: Printed
) -> None:
    arguments = ["analyze", str(dataset), "--sequence-lengths", "8,16", "--activation-memory", "1k"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert (
        "\nrecommended: none, because no length fits into the memory for activations; sequences "
        "of 8 tokens come closest\n"
    ) in out
    assert "*" not in out
    assert main([*arguments, "--csv"]) == 0
    lines = csv.DictReader(capsys.readouterr().out.splitlines())
    assert [line["recommended"] for line in lines] == ["0", "0"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recommendation"]["fits"] is False


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("--json --csv", "--json and --csv cannot be combined"),
        (
            "--sequence-lengths x",
            "--sequence-lengths: got 'x'; must be a whole number such as 4096 or 4k",
        ),
        (
            "--activation-memory x",
            "--activation-memory: got 'x'; must be a size such as 2GB or 512MiB",
        ),
        (
            "--activation-memory 24",
            "--activation-memory: got '24'; must be a whole number, at least 1000, or none, "
            "e.g. 24GB; a number without a unit means bytes\n  next: tokenmill analyze --help-all",
        ),
        ("--parameters 1B --model 7b", "--parameters, --model and the sizes of a model cannot"),
        ("--layers 2", "the shape of a model needs --hidden-size and --layers"),
        ("--hidden-size 128", "the shape of a model needs --hidden-size and --layers"),
        ("--tokens-per-batch 0", "--tokens-per-batch: got 0; must be a whole number, at"),
        ("--model 9z", "cannot find a model shape named '9z'"),
    ],
)
def test_wrong_options_are_refused(
    arguments: str, what: str, dataset: Path, capsys: Printed
) -> None:
    assert main(["analyze", str(dataset), *arguments.split()]) == 2
    assert capsys.readouterr().err.startswith(f"tokenmill: {what}")

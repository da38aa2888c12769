"""tokenmill tokenizer: its actions, each with its summary and its class."""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """One action of the command."""

    summary: str
    place: str
    """The module and the class, such as "train:Train"."""


ACTIONS = {
    "show": Action(
        "show kind, model, special tokens, engine and digests of a tokenizer", "facts:Show"
    ),
    "fingerprint": Action(
        "print a fingerprint; equal tokenizers have the same one", "facts:ShowFingerprint"
    ),
    "count": Action("count the words of a corpus, for training and reports", "count:Count"),
    "train": Action("train a tokenizer on texts or word counts", "train:Train"),
    "advise": Action("recommend a vocabulary size for a model and show its costs", "advise:Advise"),
    "diff": Action(
        "compare two tokenizers component by component; exit code 5 if they differ", "facts:Diff"
    ),
    "extend": Action("add the tokens that a corpus needs to a BPE tokenizer", "changes:Extend"),
    "trim": Action(
        "remove the tokens of a BPE tokenizer that a corpus needs least", "changes:Trim"
    ),
    "report": Action("measure one or several tokenizers on the same text", "report:ReportOn"),
}
OVERVIEW = """\
Train, extend, trim, measure, describe and compare tokenizers.

usage: tokenmill tokenizer ACTION ... [options]

examples:
  tokenmill tokenizer train data/*.jsonl.zst --vocabulary 32000 --out T/
  tokenmill tokenizer report T/ gpt2 --on data/
  tokenmill tokenizer fingerprint tokenizer.json
  tokenmill tokenizer show meta-llama/Llama-3.1-8B
  tokenmill tokenizer diff corpus/ ../model/tokenizer.json

actions:
{commands}

Run tokenmill tokenizer ACTION --help for options and examples."""

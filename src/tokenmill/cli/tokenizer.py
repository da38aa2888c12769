"""tokenmill tokenizer"""

from __future__ import annotations

import argparse
import importlib
from typing import NamedTuple

from tokenmill.cli.parser import Parser
from tokenmill.cli.stores import add_store_arguments

EXAMPLES = """\
examples:
  tokenmill tokenizer train data/*.jsonl.zst --vocabulary 32000 --out T/
  tokenmill tokenizer report T/ gpt2 --on data/
  tokenmill tokenizer fingerprint tokenizer.json
  tokenmill tokenizer show meta-llama/Llama-3.1-8B
  tokenmill tokenizer diff corpus/ ../model/tokenizer.json"""


class Action(NamedTuple):
    """One action of the command: its summary and the module that defines it."""

    summary: str
    module: str
    add_arguments: str = "add_arguments"
    run: str = "run"


ACTIONS = {
    "show": Action(
        "show kind, model, special tokens, engine and digests of a tokenizer", "facts", run="show"
    ),
    "fingerprint": Action(
        "print a fingerprint; equal tokenizers have the same one", "facts", run="show_fingerprint"
    ),
    "count": Action("count the words of a corpus, for training and reports", "count"),
    "train": Action("train a tokenizer on texts or word counts", "train"),
    "advise": Action("recommend a vocabulary size for a model and show its costs", "advise"),
    "diff": Action(
        "compare two tokenizers component by component; exit code 5 if they differ",
        "facts",
        "add_two_tokenizers",
        "show_difference",
    ),
    "extend": Action("add the tokens that a corpus needs to a BPE tokenizer", "extend"),
    "trim": Action("remove the tokens of a BPE tokenizer that a corpus needs least", "trim"),
    "report": Action("measure one or several tokenizers on the same text", "report"),
}


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill tokenizer ACTION ... [options]"
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, prog="tokenmill tokenizer"
    )
    for name, (summary, module, add, run) in ACTIONS.items():
        found = importlib.import_module(f"tokenmill.cli.tokenizers.{module}")
        description = f"{summary[0].upper()}{summary[1:]}."
        action = actions.add_parser(name, help=summary, description=description)
        getattr(found, add)(action)
        # SUPPRESS: a default here would override an option given before the action.
        action.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks"
        )
        add_store_arguments(action, default=argparse.SUPPRESS)
        action.set_defaults(act=getattr(found, run))


def run(options: argparse.Namespace) -> int:
    """Do what the action says; returns the exit code."""
    return int(options.act(options))

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
    """One action: its summary, and where it is defined."""

    summary: str
    module: str
    add_arguments: str = "add_arguments"
    run: str = "run"


ACTIONS = {
    "show": Action(
        "show kind, model, special tokens, engine and digests of components", "facts", run="show"
    ),
    "fingerprint": Action(
        "print one line that is equal for equal tokenizers", "facts", run="show_fingerprint"
    ),
    "count": Action("count the words of a corpus, for training and reports", "count"),
    "train": Action("train a tokenizer on texts or word counts", "train"),
    "advise": Action("recommend a size of vocabulary for a model, and say what it costs", "advise"),
    "diff": Action(
        "compare two tokenizers by component; exit code 5 if they differ",
        "facts",
        "add_two_tokenizers",
        "show_difference",
    ),
    "extend": Action("add tokens that a corpus needs, behind those of a BPE tokenizer", "extend"),
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
        # Kept away from the defaults of the command's own options.
        action.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks"
        )
        add_store_arguments(action, default=argparse.SUPPRESS)
        action.set_defaults(act=getattr(found, run))


def run(options: argparse.Namespace) -> int:
    """Do what the action says; returns the exit code."""
    return int(options.act(options))

"""tokenmill bench"""

from __future__ import annotations

import argparse
import importlib

from tokenmill.cli.parser import Parser
from tokenmill.cli.stores import add_store_arguments

EXAMPLES = """\
examples:
  tokenmill bench packing corpus/
  tokenmill bench tokenizers --tokenizer tokenizer.json"""
SUBJECTS = {
    "packing": "measure what packing a dataset saves, with training steps of a small model",
    "tokenizers": "measure how fast each engine encodes with a tokenizer",
}


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill bench SUBJECT ... [options]"
    parser.epilog = EXAMPLES
    subjects = parser.add_subparsers(
        dest="subject", metavar="SUBJECT", required=True, prog="tokenmill bench"
    )
    for name, summary in SUBJECTS.items():
        found = importlib.import_module(f"tokenmill.cli.benches.{name}")
        description = f"{summary[0].upper()}{summary[1:]}."
        subject = subjects.add_parser(name, help=summary, description=description)
        found.add_arguments(subject)
        # SUPPRESS: a default here would override an option given before the subject.
        subject.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks"
        )
        add_store_arguments(subject, default=argparse.SUPPRESS)
        subject.set_defaults(measure=found.run)


def run(options: argparse.Namespace) -> int:
    """Measure the subject; returns the exit code."""
    return int(options.measure(options))

"""tokenmill tokenizer trim"""

from __future__ import annotations

import argparse

from tokenmill.cli.parser import Parser
from tokenmill.cli.tokenizers.changes import add_change_arguments, print_change
from tokenmill.cli.tokenizers.facts import named_encoding

EXAMPLES = """\
examples:
  tokenmill tokenizer trim tokenizer.json --on data/ --to 24000 --out trimmed/
  tokenmill tokenizer count data/ --split tokenizer.json --out counts/
  tokenmill tokenizer trim tokenizer.json --on counts/ --to 24000 --out trimmed/"""


def add_arguments(parser: Parser) -> None:
    """The options of this action."""
    parser.usage = f"{parser.prog} BASE --on INPUT ... --to N --out DIR [options]"
    parser.epilog = EXAMPLES
    add_change_arguments(parser)
    parser.add_argument(
        "--to", required=True, type=int, metavar="N", help="number of tokens to keep"
    )


def run(options: argparse.Namespace) -> int:
    """Trim a tokenizer; returns the exit code."""
    from tokenmill.cli.meter import meter
    from tokenmill.cli.quantities import counted
    from tokenmill.report.tokenizers.source import open_tokenizer
    from tokenmill.vocabulary.changing.change import trim_file

    file = open_tokenizer(options.base, named_encoding(options))
    with meter() as advance:
        change = trim_file(file, options.on, options.out, to=options.to, advance=advance)
    figures = change.record.figures
    words = counted(figures["words_changed"], "unique word")
    summary = f"{counted(figures['removed'], 'token')} removed; {words} contained one"
    return print_change(change, summary, as_json=options.json)

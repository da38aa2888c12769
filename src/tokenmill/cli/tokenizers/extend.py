"""tokenmill tokenizer extend"""

from __future__ import annotations

import argparse

from tokenmill.cli.parser import Parser
from tokenmill.cli.tokenizers.changes import add_change_arguments, print_change
from tokenmill.cli.tokenizers.facts import named_encoding

EXAMPLES = """\
examples:
  tokenmill tokenizer extend tokenizer.json --on medical/ --add 4000 --out extended/
  tokenmill tokenizer count medical/ --split tokenizer.json --out counts/
  tokenmill tokenizer extend tokenizer.json --on counts/ --add 4000 --out extended/"""


def add_arguments(parser: Parser) -> None:
    """The options of this action."""
    parser.usage = f"{parser.prog} BASE --on INPUT ... --add N --out DIR [options]"
    parser.epilog = EXAMPLES
    add_change_arguments(parser)
    parser.add_argument(
        "--add", required=True, type=int, metavar="N", help="number of tokens to add"
    )
    parser.add_argument(
        "--min-frequency",
        default=2,
        type=int,
        metavar="N",
        help="occurrences that a pair needs to become a token (default: 2)",
    )


def run(options: argparse.Namespace) -> int:
    """Extend a tokenizer; returns the exit code."""
    from tokenmill.cli.meter import meter
    from tokenmill.cli.quantities import counted
    from tokenmill.report.tokenizers.source import open_tokenizer
    from tokenmill.vocabulary.changing.change import extend_file

    file = open_tokenizer(options.base, named_encoding(options))
    with meter() as advance:
        change = extend_file(
            file,
            options.on,
            options.out,
            add=options.add,
            min_frequency=options.min_frequency,
            advance=advance,
        )
    figures = change.record.figures
    summary = f"{counted(figures['added'], 'token')} added"
    if figures["added"] < options.add:
        summary += f": no other pair occurs {options.min_frequency:,} times or more"
    if figures["revived"]:
        summary += f"; {counted(figures['revived'], 'old token')} can now be produced"
    if figures["words_left_out"]:
        words = counted(figures["words_left_out"], "unique word")
        summary += f"; skipped {words} that contain an added token"
    return print_change(change, summary, as_json=options.json)

"""tokenmill delete"""

from __future__ import annotations

import argparse
import sys

from tokenmill.cli.parser import Parser
from tokenmill.cli.quantities import counted, size_text
from tokenmill.cli.terminal import safe_text
from tokenmill.core.errors import UserError

EXAMPLES = """\
examples:
  tokenmill delete s3://bucket/corpus
  tokenmill delete s3://bucket/corpus --yes"""


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill delete DATASET [options]"
    parser.epilog = EXAMPLES
    parser.add_argument("dataset", metavar="DATASET", help="s3://BUCKET/PREFIX")
    parser.add_argument("--yes", action="store_true", help="delete without asking")


def run(options: argparse.Namespace) -> int:
    """Show what will be deleted, ask, and delete it; returns the exit code."""
    from tokenmill.cli.meter import meter
    from tokenmill.store.deletion import delete, look_at

    holding = look_at(options.dataset)
    objects = counted(len(holding.sizes), "object")
    num_bytes = size_text(sum(holding.sizes.values()))
    print(f"{safe_text(holding.location)} holds {holding.what}: {objects}, {num_bytes}")
    if holding.strangers:
        others = counted(len(holding.strangers), "other object")
        print(f"{others} will be kept, such as {safe_text(holding.strangers[0])}")
    if not options.yes and not _agreed():
        print("nothing was deleted")
        return 2
    with meter() as advance:
        delete(holding, advance)
    print(f"deleted {objects}")
    return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        why = "standard input is not a terminal, so the command cannot ask for confirmation"
        raise UserError("nothing was deleted", why=why, hint="add --yes to delete without asking")
    return input("delete it? This cannot be undone [y/N] ").strip().lower() in ("y", "yes")

"""tokenmill build"""

from __future__ import annotations

import argparse

from tokenmill.cli.options import add_recipe_arguments, recipe_from
from tokenmill.cli.parser import Parser
from tokenmill.errors import Interrupted

EXAMPLES = """\
examples:
  tokenmill build data/*.jsonl.zst --tokenizer tokenizer.json --out corpus/
  tokenmill build data/ --tokenizer meta-llama/Llama-3.1-8B --out corpus/ \\
      --text-field content --validation 0.1% --sequence-length 4096
  tokenmill build --config recipe.yaml --set resources.workers=8"""


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill build INPUT ... --tokenizer TOKENIZER --out DIR [options]"
    parser.epilog = EXAMPLES
    add_recipe_arguments(parser)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing dataset (only ever a dataset)"
    )
    parser.add_argument("--json", action="store_true", help="events as JSON lines on stdout")


def run(options: argparse.Namespace) -> int:
    """Build, showing progress; returns the exit code."""
    recipe = recipe_from(options)
    from tokenmill.cli.display import display_for, events_for
    from tokenmill.cli.summary import BUILD
    from tokenmill.run.build import build
    from tokenmill.run.commit.receipts import num_finished_units

    try:
        with display_for(BUILD, json=options.json) as display:
            report = build(recipe, overwrite=options.overwrite, events=events_for(display))
            display.finish(report)
    except Interrupted as error:
        if kept := num_finished_units(recipe.out):
            error.add_note(f"{kept:,} finished unit{'s are' if kept > 1 else ' is'} kept")
        raise
    return 0

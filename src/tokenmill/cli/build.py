"""tokenmill build"""

from __future__ import annotations

import argparse

from tokenmill.cli.options import add_recipe_arguments, recipe_from

EXAMPLES = """
examples:
  tokenmill build data/*.jsonl.zst --tokenizer tokenizer.json --out corpus/
  tokenmill build data/ --tokenizer meta-llama/Llama-3.1-8B --out corpus/ --validation 0.1%
  tokenmill build --config recipe.yaml --set resources.workers=8
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.epilog = EXAMPLES
    add_recipe_arguments(parser)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing dataset (only ever a dataset)"
    )
    parser.add_argument("--json", action="store_true", help="events as JSON lines on stdout")


def run(options: argparse.Namespace) -> int:
    """Build, showing progress; returns the exit code."""
    recipe = recipe_from(options)
    from tokenmill.cli.display import display_for
    from tokenmill.run.build import build

    with display_for(json=options.json) as display:
        report = build(recipe, overwrite=options.overwrite, events=display.events())
        display.finish(report)
    return 0

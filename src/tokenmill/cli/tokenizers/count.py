"""tokenmill tokenizer count"""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from tokenmill.cli.options import add_overwrite, add_section, add_sections, given_options
from tokenmill.cli.parser import Parser
from tokenmill.run.recipe.options import (
    NOT_FOR_COUNTS,
    CountRecipe,
    LimitOptions,
    ReadOptions,
    ResourceOptions,
)

EXAMPLES = """\
examples:
  tokenmill tokenizer count data/*.jsonl.zst --split llama3 --out counts/
  tokenmill tokenizer count web/ code/ --split o200k --by input --min-count 2 --out counts/
  tokenmill tokenizer count corpus/ --split tokenizer.json --by language --out counts/
  tokenmill tokenizer count monday/ tuesday/ --out both/"""

COMMON = (
    *("out", "split", "digits", "by", "min_count", "format", "text_field", "workers"),
    "overwrite",
)
COUNTING = ("split", "digits", "by", "min_count")
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "read": ReadOptions,
    "limits": LimitOptions,
    "resources": ResourceOptions,
}


def add_arguments(parser: Parser) -> None:
    """The options of this action."""
    parser.usage = "tokenmill tokenizer count INPUT ... --split SPLIT --out DIR [options]"
    parser.epilog = EXAMPLES
    parser.common = COMMON
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="files, folders, globs, hf:// URLs; a dataset, for its sources; or folders of counts",
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the counts")
    add_overwrite(parser, "old counts")
    parser.add_argument("--json", action="store_true", help="events as JSON lines on stdout")
    counting = parser.add_argument_group(
        "counting", "how text is split into words, and how words are counted"
    )
    add_section(counting, CountRecipe, COUNTING)
    add_sections(parser, SECTIONS, without=NOT_FOR_COUNTS)


def run(options: argparse.Namespace) -> int:
    """Count, showing progress; returns the exit code."""
    from tokenmill.api.counting import count_inputs
    from tokenmill.cli.count_display import COUNT
    from tokenmill.cli.display import display_for, events_for, naming_kept_units

    values: dict[str, Any] = {"inputs": options.inputs, "out": options.out}
    for name in COUNTING:
        if (value := getattr(options, name)) is not None:
            values[name] = value
    for name, kind in SECTIONS.items():
        if given := given_options(options, kind):
            values[name] = given
    with naming_kept_units(options.out), display_for(COUNT, json=options.json) as display:
        report = count_inputs(values, overwrite=options.overwrite, events=events_for(display))
        display.finish(report)
    return 0

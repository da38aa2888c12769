"""tokenmill estimate"""

from __future__ import annotations

import argparse
import dataclasses

from tokenmill.cli.options import add_recipe_arguments, recipe_from
from tokenmill.cli.parser import Parser

EXAMPLES = """\
examples:
  tokenmill estimate data/ --tokenizer tokenizer.json"""


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill estimate INPUT ... --tokenizer TOKENIZER [options]"
    parser.epilog = EXAMPLES
    add_recipe_arguments(parser, out=False)
    parser.add_argument("--json", action="store_true", help="the estimate as JSON on stdout")


def run(options: argparse.Namespace) -> int:
    """Print the estimate of a build; returns the exit code."""
    recipe = recipe_from(options, "tokenmill estimate", out="(not written)")
    from tokenmill.cli.quantities import counted, duration_text, size_text
    from tokenmill.cli.tables import fact_lines
    from tokenmill.report.estimate import estimate

    found = estimate(recipe)
    if options.json:
        import msgspec

        print(msgspec.json.encode(dataclasses.asdict(found)).decode())
        return 0
    facts = {
        "inputs": f"{counted(found.files, 'file')}, {size_text(found.input_bytes)}, "
        f"about {size_text(found.decompressed_bytes)} decompressed",
        "documents": interval_text(found.documents, found.documents_interval),
        "tokens": interval_text(found.tokens, found.tokens_interval),
        "on disk": f"about {size_text(found.disk_bytes)} in {counted(found.shards, 'shard')}",
        "time": f"about {duration_text(found.seconds)} with {counted(found.num_workers, 'worker')} "
        f"({found.engine})",
        "memory": f"up to {size_text(found.memory_bytes)}",
        "sample": f"{counted(found.sample_documents, 'document')}, "
        f"{size_text(found.sample_bytes)}, {found.sample_rejected} rejected",
    }
    if found.sample_damaged:
        facts["sample"] += f"; {counted(found.sample_damaged, 'file')} damaged, counted as empty"
    print("\n".join(fact_lines(facts.items(), 10)))
    return 0


def interval_text(value: int, interval: tuple[int, int]) -> str:
    """A number with the interval in which it is: 409 M (396 to 421 M)."""
    units = ((1_000_000_000, " G"), (1_000_000, " M"), (1000, " k"), (1, ""))
    size, unit = next((entry for entry in units if value >= 10 * entry[0]), units[-1])
    digits = 1 if size > 1 and value < 100 * size else 0
    texts = [f"{number / size:,.{digits}f}" for number in (value, *interval)]
    if interval == (value, value):
        return f"{value:,}"
    return f"{texts[0]}{unit} ({texts[1]} to {texts[2]}{unit})"

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
    parser.add_argument("--json", action="store_true", help="as JSON on stdout")


def run(options: argparse.Namespace) -> int:
    """Print what a build would take and give; returns the exit code."""
    recipe = recipe_from(options, out="(not written)")
    from tokenmill.cli.quantities import counted, duration_text, size_text
    from tokenmill.report.estimate import estimate

    found = estimate(recipe)
    if options.json:
        import msgspec

        print(msgspec.json.encode(dataclasses.asdict(found)).decode())
        return 0
    facts = {
        "inputs": f"{counted(found.files, 'file')}, {size_text(found.input_bytes)}, "
        f"about {size_text(found.decompressed_bytes)} decompressed",
        "documents": f"about {found.documents:,}",
        "tokens": f"about {found.tokens:,}",
        "on disk": f"about {size_text(found.disk_bytes)} in {counted(found.shards, 'shard')}",
        "time": f"about {duration_text(found.seconds)} with {counted(found.num_workers, 'worker')} "
        f"({found.engine})",
        "memory": f"up to {size_text(found.memory_bytes)}",
        "sample": f"{counted(found.sample_documents, 'document')}, "
        f"{size_text(found.sample_bytes)}, {found.sample_rejected} rejected",
    }
    print("\n".join(f"{name:>10}  {value}" for name, value in facts.items()))
    return 0

"""tokenmill verify"""

from __future__ import annotations

import argparse
import sys

from tokenmill.cli.options import add_tokenizer_argument
from tokenmill.cli.parser import Parser
from tokenmill.cli.quantities import counted

EXAMPLES = """\
examples:
  tokenmill verify corpus/                     every byte
  tokenmill verify corpus/ --sample 5%         some blocks of every shard
  tokenmill verify corpus/ --against-sources   encode the sources again and compare
  tokenmill verify corpus/ --shard 0/8         the first of eight parts, for eight machines"""


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill verify DIR [options]"
    parser.epilog = EXAMPLES
    parser.add_argument("dataset", metavar="DIR", help="folder of the dataset")
    parser.add_argument(
        "--sample",
        default="100%",
        metavar="SHARE",
        help="share of token blocks and documents to check (default: 100%%)",
    )
    parser.add_argument(
        "--against-sources", action="store_true", help="also encode the sources again and compare"
    )
    parser.add_argument(
        "--plan",
        action="append",
        default=[],
        metavar="DIR",
        help="also check a plan outside the dataset",
    )
    parser.add_argument(
        "--shard",
        default="",
        metavar="I/N",
        help="check part I of N, counted from 0; auto: use the task number of Slurm or Kubernetes",
    )
    add_tokenizer_argument(parser)
    parser.add_argument(
        "--transform",
        metavar="python:MODULE:NAME",
        help="the function that built the texts, needed by --against-sources",
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")


def run(options: argparse.Namespace) -> int:
    """Verify, showing progress; returns the exit code."""
    from tokenmill.cli.meter import meter
    from tokenmill.core.errors import UserError
    from tokenmill.report.verify import verify
    from tokenmill.run.recipe.spellings import parse_share

    try:
        share = parse_share(options.sample)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UserError(f"--sample must be above 0 and at most 100%, got {options.sample!r}")
    with meter() as advance:
        result = verify(
            options.dataset,
            sample=share,
            against_sources=options.against_sources,
            plans=options.plan,
            tokenizer=options.tokenizer,
            transform=options.transform,
            shard=options.shard,
            advance=advance,
        )
    if options.json:
        import msgspec

        names = ("files", "bytes", "documents", "tokens", "plans")
        counts = (*names, "compared_documents", "decoded_documents")
        values = {name: getattr(result, name) for name in counts}
        part = {"shard": result.shard} if result.shard else {}
        print(msgspec.json.encode({"verified": True, "sample": share, **part, **values}).decode())
        return 0
    compared = f", {result.compared_documents:,} compared with their sources"
    print(
        "verified"
        + (f" shard {result.shard}" if result.shard else "")
        + f": {counted(result.files, 'file')}, {counted(result.documents, 'document')}, "
        + counted(result.tokens, "token")
        + (f", {counted(result.plans, 'plan')}" if result.plans else "")
        + (compared if options.against_sources else "")
        + (
            ""
            if result.decoded_documents or result.shard
            else ", not decoded (give --tokenizer with a decode method)"
        )
        + (f" ({share:.3g} of the blocks)" if share < 1 else ""),
        file=sys.stdout,
    )
    return 0

"""tokenmill cp"""

from __future__ import annotations

import argparse
import shlex

from tokenmill.cli.parser import Parser
from tokenmill.cli.quantities import counted, size_text
from tokenmill.cli.terminal import safe_text

EXAMPLES = """\
examples:
  tokenmill cp corpus/ s3://bucket/corpus
  tokenmill cp s3://bucket/corpus corpus/ --verify
  tokenmill cp corpus/ /mnt/other/corpus"""


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill cp DATASET DESTINATION [options]"
    parser.epilog = EXAMPLES
    parser.add_argument("dataset", metavar="DATASET", help="its folder, or s3://BUCKET/PREFIX")
    parser.add_argument(
        "destination", metavar="DESTINATION", help="folder of the copy, or s3://BUCKET/PREFIX"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read the destination back, and copy damaged files again",
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")


def run(options: argparse.Namespace) -> int:
    """Copy, showing progress; returns the exit code."""
    import msgspec

    from tokenmill.cli.meter import meter
    from tokenmill.store.copying.copy import copy_dataset

    with meter() as advance:
        report = copy_dataset(
            options.dataset, options.destination, verify=options.verify, advance=advance
        )
    if options.json:
        print(msgspec.json.encode(report).decode())
        return 0
    files, plans = counted(report.files, "file"), counted(report.plans, "plan")
    done = "verified" if options.verify else "complete"
    print(f"{done}: {files}, {size_text(report.bytes)}, {plans} (id {report.dataset_id})")
    there = report.files - report.copied_files
    copied = counted(report.copied_files, "file")
    print(f"copied {copied}, {size_text(report.copied_bytes)}; {there:,} already there")
    command = ["tokenmill", "verify", options.destination]
    print(f"\nnext: {safe_text(shlex.join(command))}")
    return 0

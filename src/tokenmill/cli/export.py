"""tokenmill export"""

from __future__ import annotations

import argparse

from tokenmill.cli.options import add_section, given_options
from tokenmill.cli.parser import Parser

EXAMPLES = """\
examples:
  tokenmill export corpus/ --plan best-fit-4096 --out rows/
  tokenmill export corpus/ --plan best-fit-4096 --out rows/ --format pt --max-sequences 100000
  tokenmill export corpus/ --plan elsewhere/plan --out rows/ --format npy --labels next"""


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    from tokenmill.store.exports import ExportOptions

    parser.usage = "tokenmill export DIR --plan PLAN --out DIR [options]"
    parser.epilog = EXAMPLES
    parser.add_argument("dataset", metavar="DIR", help="folder of the dataset")
    parser.add_argument(
        "--plan", required=True, help="name of a plan in the dataset, or the folder of a plan"
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the rows")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing export")
    add_section(
        parser.add_argument_group("rows", "which rows, and how they are written"), ExportOptions
    )


def run(options: argparse.Namespace) -> int:
    """Export, showing progress; returns the exit code."""
    import msgspec

    from tokenmill.cli.export_display import export_lines
    from tokenmill.cli.meter import meter
    from tokenmill.core.errors import UserError
    from tokenmill.core.valid_values import refusal
    from tokenmill.load.export.rows import export
    from tokenmill.store.exports import ExportOptions
    from tokenmill.store.plan import open_plan
    from tokenmill.store.temporary import dataset_at

    given = given_options(options, ExportOptions)
    try:
        chosen = msgspec.convert(given, ExportOptions)
    except msgspec.ValidationError as error:
        hint = "tokenmill export --help lists every option"
        why = refusal(error, given, ExportOptions)
        raise UserError("invalid export option", why=why, hint=hint) from error
    with dataset_at(options.dataset) as dataset, meter() as advance:
        plan = open_plan(dataset, options.plan)
        report = export(
            dataset, plan, options.out, chosen, overwrite=options.overwrite, advance=advance
        )
    if options.json:
        print(msgspec.json.encode(report.manifest).decode())
        return 0
    if report.already_there:
        print("nothing to do: the export is complete")
    print("\n".join(export_lines(report)))
    return 0

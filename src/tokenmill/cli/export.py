"""tokenmill export"""

from __future__ import annotations

import argparse

from tokenmill.cli.options import add_section, given_options
from tokenmill.cli.parser import Parser
from tokenmill.cli.quantities import counted

EXAMPLES = """\
examples:
  tokenmill export corpus/ --plan best-fit-4096 --out rows/
  tokenmill export corpus/ --plan best-fit-4096 --out rows/ --format pt --max-sequences 100000
  tokenmill export corpus/ --plan elsewhere/plan --out rows/ --format npy --labels next"""


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    from tokenmill.export.rows import ExportOptions

    parser.usage = "tokenmill export DIR --plan PLAN --out DIR [options]"
    parser.epilog = EXAMPLES
    parser.add_argument("dataset", metavar="DIR", help="folder of the dataset")
    parser.add_argument(
        "--plan", required=True, help="name of a plan of the dataset, or a plan's folder"
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="folder of the rows")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    add_section(
        parser.add_argument_group("rows", "which rows, and how they are written"), ExportOptions
    )


def run(options: argparse.Namespace) -> int:
    """Export, showing progress; returns the exit code."""
    import msgspec

    from tokenmill.cli.meter import meter
    from tokenmill.errors import UserError
    from tokenmill.export.rows import ExportOptions, export
    from tokenmill.store.plan import open_plan
    from tokenmill.store.temporary import dataset_at
    from tokenmill.valid_values import refusal

    given = given_options(options, ExportOptions)
    try:
        chosen = msgspec.convert(given, ExportOptions)
    except msgspec.ValidationError as error:
        hint = "tokenmill export --help lists every option"
        why = refusal(error, given, ExportOptions)
        raise UserError("invalid export option", why=why, hint=hint) from error
    with dataset_at(options.dataset) as dataset, meter() as advance:
        plan = open_plan(dataset, options.plan)
        manifest = export(dataset, plan, options.out, chosen, advance=advance)
    if options.json:
        print(msgspec.json.encode(manifest).decode())
        return 0
    num_bytes = sum(file.bytes for file in manifest.files)
    columns = ", ".join(f"{name} {dtype}" for name, dtype in manifest.dtypes.items())
    rows, files = counted(manifest.num_sequences, "row"), counted(len(manifest.files), "file")
    print(f"{rows} in {files}, {num_bytes:,} bytes")
    print(f"columns: {columns}; labels {chosen.labels}; padding is id {manifest.pad_id}")
    return 0

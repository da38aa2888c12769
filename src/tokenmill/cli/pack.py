"""tokenmill pack"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from tokenmill.cli.options import add_section, given_options
from tokenmill.cli.parser import Parser
from tokenmill.cli.terminal import safe_text
from tokenmill.pack.options import PackOptions

if TYPE_CHECKING:
    from tokenmill.pack.planning import PlanReport
    from tokenmill.store.dataset import Dataset

EXAMPLES = """\
examples:
  tokenmill pack corpus/ --sequence-length 4096
  tokenmill pack corpus/ --sequence-length 8192 --packing next-fit --long-documents drop
  tokenmill pack corpus/ --sequence-length 4096 --compare"""


COMMON = (
    *("sequence_length", "packing", "long_documents", "max_segments", "subset", "name"),
    *("plan_out", "overwrite", "compare"),
)


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill pack DIR --sequence-length N [options]"
    parser.epilog = EXAMPLES
    parser.common = COMMON
    parser.add_argument("dataset", metavar="DIR", help="folder of the dataset")
    parser.add_argument("--name", help="name of the plan (default: strategy, length and subset)")
    parser.add_argument(
        "--plan-out", metavar="DIR", help="folder for the plan, outside the dataset"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing plan")
    parser.add_argument(
        "--compare", action="store_true", help="compare all strategies; writes nothing"
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout")
    add_section(parser.add_argument_group("plan", "limits, cuts, windows, weights"), PackOptions)


def run(options: argparse.Namespace) -> int:
    """Plan, or compare plans; returns the exit code."""
    from tokenmill.core.errors import UserError
    from tokenmill.run.recipe.checks import make_pack_options
    from tokenmill.store.temporary import dataset_at

    chosen = make_pack_options(
        given_options(options, PackOptions), to_compare=options.compare, command="tokenmill pack"
    )
    if options.name is not None and options.plan_out:
        raise UserError("--name and --plan-out cannot be combined")
    with dataset_at(options.dataset) as dataset:
        if options.compare:
            return _compare(dataset, chosen, json=options.json)
        return _pack(dataset, chosen, options)


def _pack(dataset: Dataset, chosen: PackOptions, options: argparse.Namespace) -> int:
    import msgspec

    from tokenmill.cli.meter import planning_meter
    from tokenmill.cli.plan_display import plan_lines, plan_values
    from tokenmill.pack.planning import named_plan_folder, pack, place_of

    folder = options.plan_out or None
    if options.name is not None:
        folder = named_plan_folder(dataset, options.name)
    with planning_meter() as advance:
        report = pack(dataset, chosen, folder, overwrite=options.overwrite, advance=advance)
    place = "" if dataset.origin is None else place_of(report.plan, dataset)
    if options.json:
        print(msgspec.json.encode(plan_values(report, place)).decode())
        return 0
    if report.already_there:
        print("nothing to do: the plan is complete")
    print("\n".join(plan_lines(report, place)))
    command = ["tokenmill", "inspect", options.dataset, "--plan", _called(report, dataset)]
    print(f"\nnext: {safe_text(shlex.join(command))}")
    return 0


def _called(report: PlanReport, dataset: Dataset) -> str:
    """The name of a plan, or its folder if it is outside the dataset."""
    folder = report.plan.folder
    return folder.name if folder.parent == dataset.folder / "plans" else str(folder)


def _compare(dataset: Dataset, chosen: PackOptions, *, json: bool) -> int:
    from tokenmill.cli.meter import planning_meter
    from tokenmill.cli.plan_display import comparison_json, comparison_lines
    from tokenmill.pack.comparison import compare

    with planning_meter() as advance:
        rows = compare(dataset, chosen, advance)
    print(comparison_json(rows) if json else "\n".join(comparison_lines(rows, chosen.ranks)))
    return 0

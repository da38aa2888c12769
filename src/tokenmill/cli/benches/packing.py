"""tokenmill bench packing"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING, Any, get_args

from tokenmill.cli.parser import Parser, length, whole_number

if TYPE_CHECKING:
    from tokenmill.pack.options import Packing
    from tokenmill.report.packing.runner import PackingReport

EXAMPLES = """\
examples:
  tokenmill bench packing corpus/
  tokenmill bench packing corpus/ --sequence-length 8192 --packing best-fit,balanced
  tokenmill bench packing corpus/ --device cuda --layers 12 --hidden-size 768 --seconds 120"""
SECTIONS = {
    "rows": (
        "rows: padding, cuts, keys that a token attends to",
        ["packing", "rows", "padding", "cut", "avoidable", "keys in documents", "in rows"],
    ),
    "waiting": (
        "ranks: most attention cost over the mean, by step of an epoch",
        ["packing", "in order: mean", "worst", "evenly: mean", "worst"],
    ),
    "loading": (
        "loading: millions of tokens a second of one thread",
        ["packing", "with padding", "without"],
    ),
    "training": (
        "training: steps of a small model",
        ["packing", "attention", "steps", "seconds", "tokens/s", "speed-up", "in the rounds"],
    ),
}
"""Title and columns of each."""


def add_arguments(parser: Parser) -> None:
    """The options of this subject."""
    from tokenmill.report.packing.runner import SECONDS, PackingBenchOptions

    usual = PackingBenchOptions()
    parser.usage = "tokenmill bench packing DATASET [options]"
    parser.epilog = EXAMPLES
    parser.add_argument("dataset", metavar="DATASET", help="folder of the dataset, or in a bucket")
    parser.add_argument(
        "--sequence-length",
        type=length,
        default=usual.sequence_length,
        metavar="N",
        help=f"tokens in a row (default: {usual.sequence_length})",
    )
    parser.add_argument(
        "--packing",
        default=",".join(usual.packings),
        metavar="NAME,NAME",
        help=f"strategies to compare, or all (default: {','.join(usual.packings)})",
    )
    numbers = {
        "--rows": (usual.rows_per_batch, "rows of a step, and of each rank"),
        "--ranks": (usual.ranks, "ranks among which rows are dealt"),
        "--layers": (usual.num_layers, "layers of the model that is trained"),
        "--hidden-size": (usual.hidden_size, "its hidden size; heads have 64 dimensions"),
        "--seconds": (round(SECONDS), "time for the steps; each contender gets one at least"),
    }
    for flag, (default, text) in numbers.items():
        help_text = f"{text} (default: {default})"
        parser.add_argument(flag, type=whole_number, default=default, metavar="N", help=help_text)
    parser.add_argument(
        "--device",
        default="auto",
        choices=["auto", "cpu", "cuda"],
        metavar="DEVICE",
        help="cpu, cuda or auto, which uses a GPU if available (default: auto)",
    )
    parser.add_argument(
        "--json", action="store_true", help="the result as JSON on stdout, at the end"
    )
    parser.add_argument("--csv", action="store_true", help="the result as CSV, one line per figure")


def run(options: argparse.Namespace) -> int:
    """Measure, printing each table when it is complete; returns the exit code.

    Raises:
        Interrupted: a signal came; what was measured by then is shown.
    """
    from tokenmill.cli.meter import Meter
    from tokenmill.errors import Interrupted, UserError
    from tokenmill.report.packing.runner import PackingBenchOptions, bench_packing
    from tokenmill.store.temporary import dataset_at

    if options.json and options.csv:
        raise UserError("--json and --csv cannot be combined")
    wanted = PackingBenchOptions(
        sequence_length=options.sequence_length,
        packings=_packings(options.packing),
        rows_per_batch=options.rows,
        ranks=options.ranks,
        num_layers=options.layers,
        hidden_size=options.hidden_size,
        device=options.device,
        seconds=options.seconds,
    )
    meter = Meter()

    def show(report: PackingReport, section: str) -> None:
        meter.clear()
        if not options.json and not options.csv:
            _print_section(report, section)

    try:
        with dataset_at(options.dataset) as dataset:
            report = bench_packing(dataset, wanted, meter.advance, show)
    finally:
        meter.clear()
    if options.json:
        import msgspec

        print(msgspec.json.encode(dataclasses.asdict(report)).decode())
    elif options.csv:
        _print_csv(report)
    else:
        _print_end(report)
    if report.stopped_by:
        sys.stdout.flush()
        raise Interrupted(report.stopped_by)
    return 0


def _packings(text: str) -> tuple[Packing, ...]:
    """Strategies with commas between them."""
    from tokenmill.errors import UserError
    from tokenmill.pack.options import Packing
    from tokenmill.suggestions import did_you_mean

    known: tuple[Packing, ...] = get_args(Packing)
    names: tuple[Any, ...] = known if text == "all" else tuple(text.split(","))
    for name in names:
        if name not in known:
            raise UserError(
                f"{name!r} is not a packing strategy",
                why=f"choose from {', '.join(known)}, or all",
                hint=did_you_mean(name, known),
            )
    return names


def _print_section(report: PackingReport, section: str) -> None:
    from tokenmill.cli.tables import print_table

    found = getattr(report, section)
    if not found:
        return
    title, header = SECTIONS[section]
    print(f"{title}\n")
    print_table(header, [_cells(section, each) for each in found])
    print(flush=True)


def _cells(section: str, each: Any) -> list[str]:
    if section == "rows":
        counts = [f"{each.rows:,}", f"{each.padding:.2%}", f"{each.documents_cut:,}"]
        counts.append(f"{each.avoidable_cuts:,}")
        return [
            each.packing,
            *counts,
            f"{each.keys_in_documents:,.0f}",
            f"{each.keys_in_rows:,.0f}",
        ]
    if section == "waiting":
        values = dataclasses.astuple(each)[1:]
        return [each.packing, *(f"{value:.3f}" for value in values)]
    if section == "loading":
        speeds = (each.tokens_per_second, each.learned_tokens_per_second)
        return [each.packing, *(f"{speed / 1e6:.0f}" for speed in speeds)]
    return [
        each.packing,
        each.attention,
        f"{each.steps}",
        f"{each.seconds:.3f}",
        f"{each.learned_tokens_per_second:,.0f}",
        f"{each.speed_up:.2f} x",
        f"{each.lowest:.2f} to {each.highest:.2f}",
    ]


def _print_end(report: PackingReport) -> None:
    from tokenmill.cli.tables import print_facts

    facts = [
        ("dataset", report.dataset),
        ("documents", f"{report.documents:,} with {report.tokens:,} tokens"),
        ("sequences", f"{report.sequence_length:,} tokens"),
    ]
    if report.device:
        facts.append(("model", f"{report.parameters:,} parameters on {report.device}"))
    notes = [
        *report.notes,
        "padding: share of the rows' tokens; avoidable: cuts that no length demands",
        "in order, evenly: neighbouring rows go to one rank; or rows are dealt by their cost",
        "tokens/s: tokens that are not padding, of forward, backward and update",
        "speed-up: relative to one document per row, in the same round",
        "over whole rows: as if a row were one document; mask over rows: a mask of row length "
        "squared, and the same result as inside documents",
    ]
    print_facts([*facts, *(("note", note) for note in notes)])


def _print_csv(report: PackingReport) -> None:
    from csv import writer

    lines = writer(sys.stdout, lineterminator="\n")
    lines.writerow(["table", "packing", "attention", "figure", "value"])
    for section in SECTIONS:
        for each in getattr(report, section):
            values = dataclasses.asdict(each)
            names = [section, values.pop("packing"), values.pop("attention", "")]
            lines.writerows([*names, figure, value] for figure, value in values.items())

"""tokenmill bench"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenmill.cli.parser import Parser, whole_number
from tokenmill.cli.tokenizers.facts import add_encoding_arguments, named_encoding

if TYPE_CHECKING:
    from tokenmill.report.bench import BenchReport, Row

EXAMPLES = """\
examples:
  tokenmill bench tokenizers --tokenizer tokenizer.json
  tokenmill bench tokenizers --tokenizer meta-llama/Llama-3.1-8B --num-docs 6000 --input data/
  tokenmill bench tokenizers --tokenizer tokenizer.json --seconds 600 --csv > speeds.csv"""

OTHER_IDS = 7
"""The exit code of an engine that gives wrong ids."""
WIDTHS = (13, 6, 7, 9, 8, 10, 11, 9, 9, 7, 5, 9)
"""Widths of the columns: rows are printed before the widest cell is known."""
CSV_SHAPE = ("encoder", "batch_size", "threads", "processes")
CSV_FIGURES = (
    *("seconds", "first_seconds", "documents_per_second", "tokens_per_second"),
    *("speed_up", "startup_seconds", "peak_bytes", "num_different"),
)
CSV_HEADER = (*CSV_SHAPE, *CSV_FIGURES, "remark")
HEADER = (
    *("encoder", "call", "threads", "processes", "seconds", "first pass", "documents/s"),
    *("tokens/s", "speed-up", "memory", "start", "ids"),
)


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill bench tokenizers --tokenizer TOKENIZER [options]"
    parser.epilog = EXAMPLES
    parser.add_argument(
        "subject", metavar="SUBJECT", choices=["tokenizers"], help="what to measure: tokenizers"
    )
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="TOKENIZER",
        help="as for build, or the folder of a dataset",
    )
    add_encoding_arguments(parser)
    parser.add_argument(
        "--num-docs",
        type=whole_number,
        default=1000,
        metavar="N",
        help="number of documents to encode (default: 1000)",
    )
    parser.add_argument(
        "--input",
        nargs="+",
        default=[],
        metavar="FILE",
        help="files, folders, globs (default: the source files of Python's standard library)",
    )
    parser.add_argument(
        "--text-field",
        default="text",
        metavar="NAME",
        help="field that holds the text (default: text)",
    )
    parser.add_argument(
        "--seconds",
        type=whole_number,
        default=50,
        metavar="N",
        help="time limit for all rows; rows that do not fit are listed (default: 50)",
    )
    parser.add_argument(
        "--json", action="store_true", help="the result as JSON on stdout, at the end"
    )
    parser.add_argument("--csv", action="store_true", help="the result as CSV, row by row")


def run(options: argparse.Namespace) -> int:
    """Measure, printing rows as they are complete; returns the exit code, 7 if ids differ.

    Raises:
        Interrupted: a signal came; what was measured by then is shown.
    """
    from tokenmill.cli.meter import Meter
    from tokenmill.core.errors import Interrupted, UserError
    from tokenmill.report.bench import BenchOptions, bench_tokenizer

    if options.num_docs < 1:
        raise UserError(f"--num-docs must be above 0, got {options.num_docs}")
    if options.seconds < 1:
        raise UserError(f"--seconds must be above 0, got {options.seconds}")
    if options.json and options.csv:
        raise UserError("--json and --csv cannot be combined")
    wanted = BenchOptions(
        tokenizer=options.tokenizer,
        encoding=named_encoding(options),
        num_documents=options.num_docs,
        inputs=options.input,
        text_field=options.text_field,
        seconds=options.seconds,
    )
    meter = Meter()
    if not options.json:
        _print_line(HEADER if not options.csv else CSV_HEADER, csv=options.csv)

    def show(row: Row) -> None:
        meter.clear()
        if not options.json:
            _print_line(_values(row) if options.csv else _cells(row), csv=options.csv)

    try:
        report = bench_tokenizer(wanted, meter.advance, show)
    finally:
        meter.clear()
    if options.json:
        import msgspec

        print(msgspec.json.encode(dataclasses.asdict(report)).decode())
    elif not options.csv:
        _print_end(report)
    if report.stopped_by:
        sys.stdout.flush()
        raise Interrupted(report.stopped_by)
    return OTHER_IDS if any(row.num_different for row in report.rows) else 0


def _print_line(cells: Sequence[object], *, csv: bool) -> None:
    """Print a row and flush it, so that a reader of a pipe sees it at once."""
    if csv:
        from csv import writer

        writer(sys.stdout, lineterminator="\n").writerow(cells)
        sys.stdout.flush()
        return
    from tokenmill.cli.terminal import safe_text

    pairs = zip(map(safe_text, map(str, cells)), WIDTHS, strict=True)
    texts = [
        f"{cell:>{width}}" if n else f"{cell:<{width}}" for n, (cell, width) in enumerate(pairs)
    ]
    print("  ".join(texts).rstrip(), flush=True)


def _print_end(report: BenchReport) -> None:
    from tokenmill.cli.tables import print_facts

    megabytes = f"{report.num_bytes / 1e6:.2f} MB"
    print()
    print_facts(
        [
            ("tokenizer", f"{report.tokenizer} ({report.kind})"),
            ("documents", f"{report.num_documents:,} with {megabytes}, from {report.documents}"),
            ("cores", f"{report.num_cores}"),
        ]
    )
    notes = [
        *(f"{row.arrangement.encoder}: {row.remark}" for row in report.rows if row.remark),
        *report.notes,
        "call: documents per call; processes: each encodes its share of the documents",
        "speed-up: relative to the first row",
        "seconds: median of up to three passes over the same documents, after the first pass",
        "first pass: seconds for documents that the encoder, which may cache words, has not seen",
        "memory: peak of all processes together, including interpreter and documents",
        "start: seconds until the first text can be encoded, not included in seconds",
        "ids: compared with the first row, document by document",
    ]
    print_facts([("note", note) for note in notes])


def _values(row: Row) -> list[object]:
    """The figures of a row as numbers; empty if it has none."""
    arrangement = row.arrangement
    figures: list[object] = [getattr(row, name) for name in CSV_FIGURES]
    if row.remark:
        figures = [""] * len(CSV_FIGURES)
    shape = [getattr(arrangement, name) for name in CSV_SHAPE]
    return [*shape, *("" if value is None else value for value in figures), row.remark]


def _cells(row: Row) -> list[str]:
    from tokenmill.cli.quantities import size_text

    arrangement = row.arrangement
    call = "single" if arrangement.batch_size == 1 else str(arrangement.batch_size)
    cells = [arrangement.encoder, call, str(arrangement.threads), str(arrangement.processes)]
    if row.remark:
        return [cells[0], *["-"] * (len(HEADER) - 1)]
    return [
        *cells,
        f"{row.seconds:.4f}",
        f"{row.first_seconds:.4f}",
        f"{row.documents_per_second:,.0f}",
        f"{row.tokens_per_second / 1e6:,.2f} M",
        "-" if row.speed_up is None else f"{row.speed_up:.2f} x",
        size_text(row.peak_bytes),
        f"{row.startup_seconds:.2f}",
        f"{row.num_different:,} DIFFER" if row.num_different else "equal",
    ]

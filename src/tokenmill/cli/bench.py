"""tokenmill bench"""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from tokenmill.cli.parser import Parser, whole_number

if TYPE_CHECKING:
    from tokenmill.report.tokenizers.bench.runner import BenchReport, Row

EXAMPLES = """\
examples:
  tokenmill bench tokenizers --tokenizer tokenizer.json
  tokenmill bench tokenizers --tokenizer meta-llama/Llama-3.1-8B --num-docs 6000 --input data/
  tokenmill bench tokenizers --tokenizer python:my_package.tokenizers:build --num-docs 200"""

OTHER_IDS = 7
"""As for an engine that gives wrong ids."""
HEADER = (
    *("encoder", "call", "threads", "workers", "seconds", "first pass", "documents/s"),
    *("tokens/s", "speed-up", "memory", "start", "ids"),
)


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill bench tokenizers --tokenizer TOKENIZER [options]"
    parser.epilog = EXAMPLES
    parser.add_argument(
        "subject", choices=["tokenizers"], metavar="SUBJECT", help="what to measure: tokenizers"
    )
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="TOKENIZER",
        help="what `build` takes, or the folder of a dataset",
    )
    parser.add_argument(
        "--encoding", default="", metavar="NAME", help="encoding of a tiktoken rank file"
    )
    parser.add_argument(
        "--num-docs",
        type=whole_number,
        default=1000,
        metavar="N",
        help="how many documents to encode (default: 1000)",
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
    parser.add_argument("--json", action="store_true", help="as JSON on stdout")


def run(options: argparse.Namespace) -> int:
    """Measure, showing progress; returns the exit code: 7 where ids differ."""
    from tokenmill.cli.meter import meter
    from tokenmill.errors import UserError
    from tokenmill.report.tokenizers.bench.runner import BenchOptions, bench_tokenizer

    if options.num_docs < 1:
        raise UserError("--num-docs must be above 0", why=f"got {options.num_docs}")
    wanted = BenchOptions(
        tokenizer=options.tokenizer,
        encoding=options.encoding,
        num_documents=options.num_docs,
        inputs=options.input,
        text_field=options.text_field,
    )
    with meter() as advance:
        report = bench_tokenizer(wanted, advance)
    if options.json:
        import msgspec

        print(msgspec.json.encode(dataclasses.asdict(report)).decode())
    else:
        _print_report(report)
    return OTHER_IDS if any(row.num_different for row in report.rows) else 0


def _print_report(report: BenchReport) -> None:
    from tokenmill.cli.tables import print_facts, print_table

    megabytes = f"{report.num_bytes / 1e6:.2f} MB"
    facts = [
        ("tokenizer", f"{report.tokenizer} ({report.kind})"),
        ("documents", f"{report.num_documents:,} with {megabytes}, from {report.documents}"),
        ("cores", f"{report.num_cores}"),
    ]
    print_facts(facts)
    print()
    print_table(HEADER, [_cells(row) for row in report.rows])
    print()
    notes = [
        *(f"{row.arrangement.encoder}: {row.remark}" for row in report.rows if row.remark),
        *report.notes,
        "call: documents per call; workers: encoding processes, 0 for the calling one alone",
        f"speed-up: relative to single calls of {report.baseline}",
        "seconds: median of up to three passes over the same documents, after the first pass",
        "first pass: seconds for documents that the encoder, which may cache words, has not seen",
        "memory: peak of all processes together, including interpreter and documents",
        "start: seconds until the first text can be encoded, not included in seconds",
        "ids: compared with the first row, document by document",
    ]
    print_facts([("note", note) for note in notes])


def _cells(row: Row) -> list[str]:
    from tokenmill.cli.quantities import size_text

    arrangement = row.arrangement
    call = "single" if arrangement.batch_size == 1 else str(arrangement.batch_size)
    threads = f"{arrangement.threads}{' Python' if arrangement.python_threads else ''}"
    cells = [arrangement.encoder, call, threads, str(arrangement.processes)]
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

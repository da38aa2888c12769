"""tokenmill bench tokenizers"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from tokenmill.cli.meter import Meter
from tokenmill.cli.tables import print_facts, print_json
from tokenmill.cli.tokenizers.facts import RankFile
from tokenmill.core.errors import Interrupted
from tokenmill.core.options import about
from tokenmill.core.values import safe_text, size_text

if TYPE_CHECKING:
    from tokenmill.reports.bench import BenchReport, Row

OTHER_IDS = 7
"""The exit code of an engine that gives wrong ids."""
COLUMNS = {
    "encoder": 13,
    "call": 6,
    "threads": 7,
    "processes": 9,
    "seconds": 8,
    "first pass": 10,
    "documents/s": 11,
    "tokens/s": 9,
    "speed-up": 9,
    "memory": 7,
    "start": 5,
    "ids": 9,
}
"""The columns with their widths: rows are printed before the widest cell is known."""
CSV_SHAPE = ("encoder", "batch_size", "threads", "processes")
CSV_FIGURES = (
    *("seconds", "first_seconds", "documents_per_second", "tokens_per_second"),
    *("speed_up", "startup_seconds", "peak_bytes", "num_different"),
)


class Bench(RankFile, kw_only=True):
    """Measure how fast engines encode."""

    usage: ClassVar[str] = "--tokenizer TOKENIZER [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill bench tokenizers --tokenizer tokenizer.json
  tokenmill bench tokenizers --tokenizer meta-llama/Llama-3.1-8B --num-docs 6000 --input data/
  tokenmill bench tokenizers --tokenizer tokenizer.json --seconds 600 --csv > speeds.csv"""

    tokenizer: Annotated[
        str,
        about(
            "as for build, or the folder of a dataset",
            example="tokenizer.json",
            metavar="TOKENIZER",
        ),
    ]
    num_docs: Annotated[int, Meta(ge=1, description="number of documents to encode")] = 1000
    input: Annotated[
        list[str],
        about(
            "files, folders, globs (default: the source files of Python's standard library)",
            metavar="FILE",
            nargs="+",
        ),
    ] = []
    text_field: Annotated[str, about("field that holds the text")] = "text"
    seconds: Annotated[
        int, Meta(ge=1, description="time limit for all rows; rows that do not fit are listed")
    ] = 50
    json: Annotated[bool, about("the result as JSON on stdout, at the end")] = False
    csv: Annotated[bool, about("the result as CSV, row by row")] = False

    def run(self) -> int:
        """Measure, printing rows as they are complete; the exit code is 7 if ids differ.

        Raises:
            Interrupted: a signal came; what was measured by then is shown.
        """
        from tokenmill.reports.bench import BenchOptions, bench_tokenizer

        wanted = BenchOptions(
            tokenizer=self.tokenizer,
            encoding=self.rank_encoding,
            num_documents=self.num_docs,
            inputs=self.input,
            text_field=self.text_field,
            seconds=self.seconds,
        )
        meter = Meter()
        if self.csv:
            _print_csv((*CSV_SHAPE, *CSV_FIGURES, "remark"))
        elif not self.json:
            _print_line(list(COLUMNS))

        def show(row: Row) -> None:
            meter.clear()
            if self.csv:
                _print_csv(_values(row))
            elif not self.json:
                _print_line(_cells(row))

        try:
            report = bench_tokenizer(wanted, meter.advance, show)
        finally:
            meter.clear()
        if self.json:
            print_json(report)
        elif not self.csv:
            _print_end(report)
        if report.stopped_by:
            sys.stdout.flush()
            raise Interrupted(report.stopped_by)
        return OTHER_IDS if any(row.num_different for row in report.rows) else 0


def _print_csv(cells: Sequence[object]) -> None:
    csv.writer(sys.stdout, lineterminator="\n").writerow(cells)
    sys.stdout.flush()  # so that a reader of a pipe sees it at once


def _print_line(cells: Sequence[str]) -> None:
    first, *others = zip(map(safe_text, cells), COLUMNS.values(), strict=True)
    texts = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
    print("  ".join(texts).rstrip(), flush=True)


def _print_end(report: BenchReport) -> None:
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
    arrangement = row.arrangement
    call = "single" if arrangement.batch_size == 1 else str(arrangement.batch_size)
    cells = [arrangement.encoder, call, str(arrangement.threads), str(arrangement.processes)]
    if row.remark:
        return [cells[0], *["-"] * (len(COLUMNS) - 1)]
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

"""A report as CSV: one figure a line, so that any tool can pivot it."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator

from tokenmill.report.tokenizers.metrics.sums import Ratio
from tokenmill.report.tokenizers.report import Report, TokenizerReport

HEADER = ("tokenizer", "group", "figure", "value", "low", "high")
Line = tuple[str, str, str, object, object, object]


def csv_lines(report: Report) -> str:
    """All figures of a report. Examples and lists of tokens are only in JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for found in report.tokenizers:
        writer.writerows(_lines(found))
    return text.getvalue()


def _lines(found: TokenizerReport) -> Iterator[Line]:
    name = found.tokenizer
    yield from _figures(name, "", found.texts)
    for group, figures in found.groups.items():
        yield from _figures(name, group, figures)
    if found.inequality is not None:
        yield from _figures(name, "", found.inequality)
    yield from _figures(name, "", found.tokens, "use.")
    for point in found.tokens.rank_frequency:
        yield name, "", f"use.count_at_rank_{point.rank}", point.count, None, None
    for rows in found.rows:
        prefix = f"rows_{rows.sequence_length}."
        yield from _figures(name, "", rows, prefix)
    if found.vocabulary is not None:
        yield from _figures(name, "", found.vocabulary, "vocabulary.")
    if found.overlap is not None:
        yield from _figures(name, "", found.overlap, "overlap.")


def _figures(name: str, group: str, figures: object, prefix: str = "") -> Iterator[Line]:
    for field in dataclasses.fields(figures):  # type: ignore[arg-type]
        value = getattr(figures, field.name)
        if isinstance(value, Ratio):
            yield name, group, prefix + field.name, value.value, value.low, value.high
        elif isinstance(value, (int, float, str)):
            yield name, group, prefix + field.name, value, None, None

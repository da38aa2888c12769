"""Charts of a page: a title, data that the page's script draws, and the same figures as a table.

The script draws with Observable Plot, which is embedded whole (280 KB; uPlot draws on a canvas,
which screen readers cannot read, ECharts needs 500 KB and Vega-Lite 830 for the same charts).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from tokenmill.core.charts import Point
from tokenmill.core.html import Html, element, table, text
from tokenmill.core.tables import Cell, Number, number, percent, table_of
from tokenmill.core.values import safe_text
from tokenmill.reports.lengths.counts import Bin
from tokenmill.reports.sequence import SequenceView

MOST_NAME = 80
"""The longest name in a chart."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The labels of both axes, and how they are divided."""

    x: str
    y: str = ""
    xlog: bool = False
    ylog: bool = False
    xshare: bool = False
    yshare: bool = False
    xticks: tuple[int, ...] = ()
    """The values to name on the x axis; by default round ones."""


Marks = Sequence[tuple[float, str]]
"""Places on the x axis with their names."""


def histogram(title: str, bins: Sequence[Bin], unit: str, x: str, marks: Marks = ()) -> Html:
    """Bins on a logarithmic axis by their share of tokens, or of documents or segments (`unit`)."""
    sizes = [each.tokens if unit == "tokens" else each.documents for each in bins]
    total = max(sum(sizes), 1)
    shown = [
        {
            "low": each.low,
            "high": each.high + 1,
            "share": size / total,
            "text": f"{each} {x}: {size / total:.2%} of the {unit}",
        }
        for each, size in zip(bins, sizes, strict=True)
    ]
    rows = [
        (str(each), number(size), percent(size / total))
        for each, size in zip(bins, sizes, strict=True)
    ]
    axes = Axes(x, f"share of {unit}", xlog=True, yshare=True)
    details = table((x, unit, "share"), rows)
    return _chart("histogram", title, axes, {"bins": shown, "marks": _marks(marks)}, details)


def bars(title: str, shown: Sequence[tuple[str, Number]], axes: Axes, best: str = "") -> Html:
    """Horizontal bars, one below the other; `best` stands out from the others if given."""
    values = [
        {
            "name": safe_text(name[:MOST_NAME]),
            "value": each.value,
            "text": str(each),
            "best": best in ("", name),
        }
        for name, each in shown
    ]
    return _chart("bars", title, axes, {"bars": values}, table(("", axes.x), shown))


def points(
    kind: Literal["lines", "dots"],
    title: str,
    found: Sequence[Point],
    axes: Axes,
    marks: Marks = (),
) -> Html:
    """Points with a name each, which is beside it, or of the line that it belongs to."""
    rows, shown = [], []
    for name, x, y in found:
        name = safe_text(name[:MOST_NAME])
        row = (name, _cell(x, is_share=axes.xshare), _cell(y, is_share=axes.yshare))
        text_ = f"{name}: {axes.x} {row[1]}, {axes.y} {row[2]}".removeprefix(": ")
        shown.append({"x": x, "y": y, "name": name, "text": text_})
        rows.append(row)
    data = {"points": shown, "marks": _marks(marks)}
    return _chart(kind, title, axes, data, table(("", axes.x, axes.y), rows))


def rows_of_batch(title: str, rows: Sequence[SequenceView]) -> Html:
    """Rows of a batch: a colour for each document, pale without loss, grey padding."""
    spans = [span for at, row in enumerate(rows) for span in _spans(at, row)]
    length = max((row.row_length for row in rows), default=1)
    columns: dict[str, Callable[[tuple[int, SequenceView]], Cell]] = {
        "row": lambda each: f"row {each[0]}",
        "sequence": lambda each: number(each[1].sequence),
        "documents": lambda each: number(len(each[1].segments)),
        "padding": lambda each: number(each[1].padding),
    }
    data = {"spans": spans, "rows": len(rows), "length": length}
    details = table(*table_of(columns, enumerate(rows)))
    return _chart("rows", title, Axes("tokens"), data, details)


def _spans(at: int, row: SequenceView) -> list[dict[str, Any]]:
    """Consecutive tokens of a row that look alike, and the gaps between documents."""
    found: list[dict[str, Any]] = []

    def add(stop: int, kind: str, about: str, order: int) -> None:
        start = found[-1]["to"] if found else 0
        if stop > start:
            span = {"row": at, "from": start, "to": stop, "kind": kind}
            found.append({**span, "text": about, "order": order})

    for order, segment in enumerate(row.segments):
        add(segment.column, "padding", "padding", order)
        source = safe_text(str(segment.record.get("source", ""))[:MOST_NAME])
        about = f"document {segment.document:,} of {source}, from token {segment.start:,}"
        stop = segment.column
        for has_loss, runs in itertools.groupby(segment.runs, key=lambda run: run.has_loss):
            stop += sum(len(run.ids) for run in runs)
            add(stop, "loss" if has_loss else "no loss", about, order)
    add(row.row_length, "padding", "padding", 0)
    return found


def _marks(marks: Marks) -> list[dict[str, Any]]:
    return [{"at": at, "label": safe_text(label)} for at, label in marks]


def _cell(value: float, *, is_share: bool) -> Number:
    return percent(value) if is_share else number(value)


def _chart(kind: str, title: str, axes: Axes, data: dict[str, Any], details: Html) -> Html:
    values = {"kind": kind, "title": title, **msgspec.to_builtins(axes), **data}
    # In a script element, only "<" could end the data.
    script = msgspec.json.encode(values).decode().replace("<", "\\u003c")
    return element(
        "figure",
        text("figcaption", title),
        Html(f'<script type="application/json">{script}</script>'),
        element("div", class_="drawn"),
        element("details", text("summary", "figures"), details),
        class_="chart",
    )

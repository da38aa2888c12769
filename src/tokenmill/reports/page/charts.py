"""Charts of a page: a title, data that the page's script draws, and the same figures as a table.

The script draws with Observable Plot, which is embedded whole (260 KB; uPlot draws on a canvas,
which screen readers cannot read, ECharts needs 500 KB and Vega-Lite 830 for the same charts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tokenmill.core.html import Html, element, escaped, table
from tokenmill.core.tables import Cell, number, percent
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


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line or a cloud."""

    x: float
    y: float
    series: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with its name, and the text at its end."""

    name: str
    value: float
    text: str
    best: bool = True
    """Whether it stands out from the others."""


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
            "text": f"{_range(each)} {x}: {size / total:.2%} of the {unit}",
        }
        for each, size in zip(bins, sizes, strict=True)
    ]
    rows = [
        (_range(each), number(size), percent(size / total))
        for each, size in zip(bins, sizes, strict=True)
    ]
    axes = Axes(x, f"share of {unit}", xlog=True, yshare=True)
    details = table((x, unit, "share"), rows)
    return _chart("histogram", title, axes, {"bins": shown, "marks": _marks(marks)}, details)


def bars(title: str, shown: Sequence[Bar], axes: Axes) -> Html:
    """Horizontal bars, one below the other."""
    values = [
        {**msgspec.to_builtins(bar), "name": safe_text(bar.name[:MOST_NAME])} for bar in shown
    ]
    details = table(("", axes.x), [(bar.name, bar.text) for bar in shown])
    return _chart("bars", title, axes, {"bars": values}, details)


def lines(title: str, points: Sequence[Point], axes: Axes, marks: Marks = ()) -> Html:
    """One line for each series, with its points."""
    return _points("lines", title, points, axes, marks)


def dots(title: str, points: Sequence[Point], axes: Axes) -> Html:
    """Points with their names beside them."""
    return _points("dots", title, points, axes)


def _points(kind: str, title: str, points: Sequence[Point], axes: Axes, marks: Marks = ()) -> Html:
    def cell(value: float, *, is_share: bool) -> Cell:
        return percent(value) if is_share else number(value)

    rows, shown = [], []
    for each in points:
        name = safe_text((each.name or each.series)[:MOST_NAME])
        x, y = cell(each.x, is_share=axes.xshare), cell(each.y, is_share=axes.yshare)
        rows.append((name, x, y))
        text = f"{name}: {axes.x} {_text(x)}, {axes.y} {_text(y)}".removeprefix(": ")
        shown.append({"x": each.x, "y": each.y, "series": each.series, "name": name, "text": text})
    details = table(("", axes.x, axes.y), rows)
    return _chart(kind, title, axes, {"points": shown, "marks": _marks(marks)}, details)


def rows_of_batch(title: str, rows: Sequence[SequenceView]) -> Html:
    """Rows of a batch: a colour for each document, pale without loss, grey padding."""
    spans = [span for at, row in enumerate(rows) for span in _spans(at, row)]
    length = max((row.row_length for row in rows), default=1)
    cells = [
        (
            f"row {at}",
            number(row.sequence),
            number(len(row.segments)),
            number(row.padding),
        )
        for at, row in enumerate(rows)
    ]
    details = table(("row", "sequence", "documents", "padding"), cells)
    data = {"spans": spans, "rows": len(rows), "length": length}
    return _chart("rows", title, Axes("tokens"), data, details)


def _spans(at: int, row: SequenceView) -> list[dict[str, Any]]:
    """Consecutive tokens of a row that look alike, and the gaps between them."""
    found: list[dict[str, Any]] = []
    end = 0
    for order, segment in enumerate(row.segments):
        if segment.column > end:
            found.append(_span(at, end, segment.column, "padding", "padding"))
        end = segment.column
        source = safe_text(str(segment.record.get("source", ""))[:MOST_NAME])
        text = f"document {segment.document:,} of {source}, from token {segment.start:,}"
        for run in segment.runs:
            kind = "loss" if run.has_loss else "no loss"
            last = found[-1] if found else {}
            if (last.get("row"), last.get("kind"), last.get("text")) == (at, kind, text):
                last["to"] = end + len(run.ids)
            else:
                span = _span(at, end, end + len(run.ids), kind, text)
                found.append({**span, "order": order})
            end += len(run.ids)
    if end < row.row_length:
        found.append(_span(at, end, row.row_length, "padding", "padding"))
    return found


def _span(row: int, start: int, stop: int, kind: str, text: str) -> dict[str, Any]:
    return {"row": row, "from": start, "to": stop, "kind": kind, "text": text}


def _marks(marks: Marks) -> list[dict[str, Any]]:
    return [{"at": at, "label": safe_text(label)} for at, label in marks]


def _range(each: Bin) -> str:
    return f"{each.low:,}" if each.low == each.high else f"{each.low:,} to {each.high:,}"


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def _chart(kind: str, title: str, axes: Axes, data: dict[str, Any], details: Html) -> Html:
    values = {"kind": kind, "title": title, **msgspec.to_builtins(axes), **data}
    # In a script element, only "<" could end the data.
    text = msgspec.json.encode(values).decode().replace("<", "\\u003c")
    return element(
        "figure",
        element("figcaption", escaped(title)),
        Html(f'<script type="application/json">{text}</script>'),
        element("div", class_="drawn"),
        element("details", element("summary", Html("figures")), details),
        class_="chart",
    )

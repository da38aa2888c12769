"""Charts for notebooks: each is described once, and drawn by Altair or Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

from tokenmill.core.errors import UserError

Library = Literal["altair", "matplotlib"]
Point = tuple[str, float, float]
"""A name, x and y."""
WIDTH, HEIGHT = 560, 200
"""Pixels of a chart."""


def histogram(
    title: str,
    names: tuple[str, str],
    edges: Sequence[float],
    counts: Sequence[int],
    library: Library | None,
    *,
    logarithmic: bool = False,
) -> Any:
    """Draw a histogram with `names` of its axes; bar i goes from `edges[i]` to `edges[i + 1]`."""
    bars = zip(edges, edges[1:], counts, strict=False)
    if _chosen(library) == "altair":
        alt = import_module("altair")
        rows = [{"from": low, "to": high, "number": count} for low, high, count in bars]
        scale = alt.Scale(type="log", base=2, nice=False) if logarithmic else alt.Scale()
        chart = alt.Chart(alt.Data(values=rows), title=title, width=WIDTH, height=HEIGHT)
        return chart.mark_rect().encode(
            x=alt.X("from:Q", title=names[0], scale=scale),
            x2="to:Q",
            y=alt.Y("number:Q", title=names[1]),
            y2=alt.datum(0),
            tooltip=["from:Q", "to:Q", "number:Q"],
        )
    figure, axes = _figure(title, names, logarithmic)
    for low, high, count in bars:
        axes.bar(low, count, high - low, align="edge", color="C0")
    return figure


def scatter(
    title: str, names: tuple[str, str], points: Sequence[Point], library: Library | None
) -> Any:
    """Draw points with their names, and a line through the best; x is logarithmic."""
    if _chosen(library) == "altair":
        alt = import_module("altair")
        shown, line = (
            alt.Chart(alt.Data(values=[{"name": n, "x": x, "y": y} for n, x, y in some])).encode(
                x=alt.X("x:Q", title=names[0], scale=alt.Scale(type="log", base=2)),
                y=alt.Y("y:Q", title=names[1], scale=alt.Scale(zero=False)),
                tooltip=["name:N", "x:Q", "y:Q"],
            )
            for some in (points, best(points))
        )
        labels = shown.mark_text(align="left", dx=8).encode(text="name:N")
        layers = line.mark_line(opacity=0.5) + shown.mark_circle(size=60, opacity=1) + labels
        return layers.properties(title=title, width=WIDTH, height=HEIGHT)
    figure, axes = _figure(title, names, True)
    axes.plot(*zip(*(point[1:] for point in best(points)), strict=True), alpha=0.5)
    ticks: list[float] = []
    for name, x, y in sorted(points, key=lambda point: point[1]):
        axes.scatter(x, y, color="C0")
        place = {"xytext": (6, 3), "textcoords": "offset points"}
        axes.annotate(name, (x, y), parse_math=False, **place)  # a name may hold "$"
        ticks += [x] if not ticks or x > 1.2 * ticks[-1] else []
    axes.margins(x=0.2, y=0.2)
    axes.set_xticks(ticks)
    return figure


def best(points: Sequence[Point]) -> list[Point]:
    """Return the points with more y than all others with as little x, by x."""
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point[1], -point[2])):
        if not found or point[2] > found[-1][2]:
            found.append(point)
    return found


def _chosen(library: Library | None) -> Library:
    """Return the library to draw with: `library`, or the first that is installed."""
    known: tuple[Library, ...] = get_args(Library)
    for name in known if library is None else (library,):
        if name in known and find_spec(name):
            return name
    is_known = library is None or library in known
    raise UserError(
        f"cannot draw a chart with {library or 'altair or matplotlib'}",
        why="not installed" if is_known else "library must be altair or matplotlib",
        hint="pip install altair, or pip install matplotlib",
    )


def _figure(title: str, names: tuple[str, str], logarithmic: bool) -> tuple[Any, Any]:
    """Return a figure and its axes. pyplot forgets it, so that a notebook shows it only once."""
    pyplot = import_module("matplotlib.pyplot")
    size = (WIDTH / 80, HEIGHT / 80)  # inches
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    axes.set(title=title, xlabel=names[0], ylabel=names[1])
    if logarithmic:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter("")
    pyplot.close(figure)
    return figure, axes

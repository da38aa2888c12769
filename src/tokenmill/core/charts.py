"""Charts: described here once, and drawn by the library that is installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

from tokenmill.core.errors import UserError
from tokenmill.core.html import Html
from tokenmill.core.pictures import histogram

Library = Literal["altair", "matplotlib"]
WIDTH, HEIGHT = 560, 200
"""Pixels of a chart."""


class Chart(ABC):
    """A chart that each of the libraries can draw."""

    __slots__ = ()

    def draw(self, library: Library | None = None) -> Any:
        """Return a chart of Altair or a figure of Matplotlib.

        Raises:
            UserError: the library is unknown or not installed.
        """
        return self._in_altair() if _installed(library) == "altair" else self._in_matplotlib()

    @abstractmethod
    def _in_altair(self) -> Any:
        """Return a chart of Altair."""

    @abstractmethod
    def _in_matplotlib(self) -> Any:
        """Return a figure of Matplotlib."""


@dataclass(frozen=True, slots=True)
class Histogram(Chart):
    """How many things there are of each size; bar i goes from `edges[i]` to `edges[i + 1]`."""

    title: str
    x: str
    y: str
    edges: Sequence[float]
    counts: Sequence[int]
    logarithmic: bool = False

    def picture(self) -> Html:
        """Return the histogram as a small picture for a page."""
        first, last = f"{self.edges[0]:,}", f"{self.edges[-1]:,} {self.x}"
        return histogram(self.counts, first, last, self.title)

    def _in_altair(self) -> Any:
        alt = import_module("altair")
        bars = [
            {"from": low, "to": high, self.y: count}
            for low, high, count in zip(self.edges, self.edges[1:], self.counts, strict=False)
        ]
        scale = alt.Scale(type="log", base=2, nice=False) if self.logarithmic else alt.Scale()
        return (
            alt.Chart(alt.Data(values=bars), title=self.title, width=WIDTH, height=HEIGHT)
            .mark_rect(stroke="white", strokeWidth=0.5)
            .encode(
                x=alt.X("from:Q", title=self.x, scale=scale),
                x2="to:Q",
                y=alt.Y(f"{self.y}:Q", title=self.y),
                y2=alt.datum(0),
                tooltip=["from:Q", "to:Q", f"{self.y}:Q"],
            )
        )

    def _in_matplotlib(self) -> Any:
        figure, axes = _matplotlib_figure(self.title, self.x, self.y)
        widths = [high - low for low, high in zip(self.edges, self.edges[1:], strict=False)]
        axes.bar(
            self.edges[:-1], self.counts, widths, align="edge", edgecolor="white", linewidth=0.5
        )
        if self.logarithmic:
            _logarithmic(axes)
        return figure


@dataclass(frozen=True, slots=True)
class Scatter(Chart):
    """Things with a name and two figures, and a line through the best of them. x is logarithmic."""

    title: str
    x: str
    y: str
    points: Sequence[tuple[str, float, float]]
    """Name, x and y."""

    @property
    def best(self) -> list[tuple[str, float, float]]:
        """The points that no other point beats: each has more y than all with as little x."""
        found: list[tuple[str, float, float]] = []
        for point in sorted(self.points, key=lambda point: (point[1], -point[2])):
            if not found or point[2] > found[-1][2]:
                found.append(point)
        return found

    def _in_altair(self) -> Any:
        alt = import_module("altair")

        def chart(points: Sequence[tuple[str, float, float]]) -> Any:
            rows = [{"name": name, "x": x, "y": y} for name, x, y in points]
            return alt.Chart(alt.Data(values=rows)).encode(
                x=alt.X("x:Q", title=self.x, scale=alt.Scale(type="log", base=2)),
                y=alt.Y("y:Q", title=self.y, scale=alt.Scale(zero=False)),
                tooltip=["name:N", "x:Q", "y:Q"],
            )

        dots, line = chart(self.points), chart(self.best)
        names = dots.mark_text(align="left", dx=8).encode(text="name:N")
        layers = line.mark_line(opacity=0.5) + dots.mark_circle(size=60, opacity=1) + names
        return layers.properties(title=self.title, width=WIDTH, height=HEIGHT)

    def _in_matplotlib(self) -> Any:
        figure, axes = _matplotlib_figure(self.title, self.x, self.y)
        axes.plot([x for _, x, _ in self.best], [y for _, _, y in self.best], alpha=0.5)
        axes.scatter([x for _, x, _ in self.points], [y for _, _, y in self.points])
        for name, x, y in self.points:
            place = {"xytext": (6, 3), "textcoords": "offset points"}
            axes.annotate(name, (x, y), parse_math=False, **place)  # a name may hold "$"
        axes.margins(x=0.2, y=0.2)
        _logarithmic(axes)
        ticks: list[float] = []
        for _, x, _ in sorted(self.points, key=lambda point: point[1]):
            ticks += [x] if not ticks or x > 1.2 * ticks[-1] else []
        axes.set_xticks(ticks)
        return figure


def _installed(library: Library | None) -> Library:
    """Return the library to draw with: `library`, or the first that is installed."""
    known: tuple[Library, ...] = get_args(Library)
    if library is not None and library not in known:
        raise UserError("library must be altair or matplotlib", why=f"got {library!r}")
    for name in known if library is None else (library,):
        try:
            import_module(name)
        except ModuleNotFoundError:
            continue
        return name
    if library is not None:
        raise UserError(f"{library} is not installed", hint=f"pip install {library}")
    raise UserError(
        "no library that draws charts is installed",
        why="charts need altair or matplotlib",
        hint="pip install altair, or pip install matplotlib",
    )


def _matplotlib_figure(title: str, x: str, y: str) -> tuple[Any, Any]:
    """Return a figure and its axes. pyplot forgets it, so that a notebook shows it only once."""
    pyplot = import_module("matplotlib.pyplot")
    size = (WIDTH / 80, HEIGHT / 80)  # inches
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    axes.set(title=title, xlabel=x, ylabel=y)
    pyplot.close(figure)
    return figure, axes


def _logarithmic(axes: Any) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter("")

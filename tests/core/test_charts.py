"""Charts hold what they were given, in each library; small pictures show it without a script."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tokenmill.core import charts, pictures
from tokenmill.core.charts import Library, best, histogram, scatter
from tokenmill.core.errors import UserError

POINTS = [("small", 400, 3.0), ("$x^", 400, 1.0), ("worse", 500, 2.0), ("big", 900, 4.0)]


def lengths(library: Library | None) -> Any:
    names = ("tokens", "documents")
    return histogram("Lengths", names, [2, 3, 4, 6], [1, 0, 3], library, logarithmic=True)


def tokenizers(library: Library) -> Any:
    return scatter("Tokenizers", ("ids", "bytes"), POINTS, library)


def bars_of(axes: Any) -> list[tuple[float, float, float]]:
    return [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in axes.patches]


def test_matplotlib_draws_each_bar_where_it_belongs() -> None:
    (axes,) = lengths("matplotlib").axes
    assert bars_of(axes) == [(2, 1, 1), (3, 1, 0), (4, 2, 3)]
    labels = axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()
    assert labels == ("Lengths", "tokens", "documents", "log")


def test_altair_draws_each_bar_where_it_belongs() -> None:
    pytest.importorskip("altair")
    chart = lengths("altair").to_dict()
    assert chart["data"]["values"] == [
        {"from": 2, "to": 3, "number": 1},
        {"from": 3, "to": 4, "number": 0},
        {"from": 4, "to": 6, "number": 3},
    ]
    assert chart["title"] == "Lengths"
    x, y = chart["encoding"]["x"], chart["encoding"]["y"]
    assert (x["title"], x["scale"]["type"], y["title"]) == ("tokens", "log", "documents")


def test_the_line_goes_through_what_no_other_point_beats() -> None:
    assert best(POINTS[::-1]) == [("small", 400, 3.0), ("big", 900, 4.0)]


def test_matplotlib_names_points_and_draws_the_line_through_the_best() -> None:
    figure = tokenizers("matplotlib")
    figure.canvas.draw()  # "$x^" would be no formula
    (axes,) = figure.axes
    (line,) = axes.lines
    dots = [tuple(dot.get_offsets().tolist()[0]) for dot in axes.collections]
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([400, 900], [3.0, 4.0])
    assert [(text.get_text(), *dot) for text, dot in zip(axes.texts, dots, strict=True)] == POINTS


def test_altair_names_points_and_draws_the_line_through_the_best() -> None:
    pytest.importorskip("altair")
    line, dots, names = tokenizers("altair").to_dict()["layer"]
    assert [row["name"] for row in line["data"]["values"]] == ["small", "big"]
    assert [tuple(row.values()) for row in dots["data"]["values"]] == POINTS
    assert names["encoding"]["text"]["field"] == "name"
    kinds = [layer["mark"]["type"] for layer in (line, dots, names)]
    assert kinds == ["line", "circle", "text"]


def test_altair_draws_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("altair")
    assert type(lengths(None)).__module__.startswith("altair")
    monkeypatch.setattr(charts, "find_spec", lambda name: name == "matplotlib" or None)
    assert type(lengths(None)).__module__ == "matplotlib.figure"


def test_a_missing_library_is_named_with_the_command_that_installs_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="cannot draw a chart with altair or matplotlib") as caught:
        lengths(None)
    assert caught.value.why == "not installed"
    assert caught.value.hint == "pip install altair, or pip install matplotlib"
    with pytest.raises(UserError, match="cannot draw a chart with plotly") as caught:
        lengths("plotly")  # type: ignore[arg-type]
    assert caught.value.why == "library must be altair or matplotlib"


# small pictures


def test_a_histogram_is_a_picture_with_its_ends_named() -> None:
    drawn = pictures.histogram([1, 0, 3], "2", "6 tokens", "<lengths>")
    assert rectangles(drawn) == [
        "0.0,32.0,105.7,16.0",
        "106.7,48.0,105.7,0.0",
        "213.3,0.0,105.7,48.0",
    ]
    assert texts(drawn) == ["&lt;lengths&gt;", "2", "6 tokens"]


def test_rows_are_drawn_with_their_segments_and_without_padding() -> None:
    drawn = pictures.rows([[4, 4], [6]], 8, "two rows")
    assert rectangles(drawn) == ["0.0,0,160.0,10", "160.0,0,160.0,10", "0.0,12,240.0,10"]
    assert re.findall(r'<rect [^>]*opacity="(\S+?)"', drawn) == ["0.75", "0.4", "0.75"]
    assert texts(drawn) == ["two rows", "two rows", ""]


def test_segments_that_are_too_narrow_to_see_are_drawn_together() -> None:
    assert len(rectangles(pictures.rows([[1] * 100_000], 100_000, "a long row"))) == 320


def rectangles(picture: str) -> list[str]:
    """x, y, width and height of each, in the order of the picture."""
    found = []
    for attributes in re.findall(r"<rect ([^>]*)>", picture):
        values = dict(re.findall(r'(\w+)="([^"]*)"', attributes))
        found.append(",".join(values[name] for name in ("x", "y", "width", "height")))
    return found


def texts(picture: str) -> list[str]:
    return re.findall(r"<(?:title|text)[^>]*>([^<]*)<", picture)

"""Charts hold what they were given, in each library; small pictures show it without a script."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tokenmill.core import charts, pictures
from tokenmill.core.charts import Histogram, Scatter
from tokenmill.core.errors import UserError

LENGTHS = Histogram("Lengths", "tokens", "documents", [2, 3, 4, 6], [1, 0, 3], logarithmic=True)
TOKENIZERS = Scatter(
    "Tokenizers",
    "ids",
    "bytes",
    [("big", 900, 4.0), ("worse", 500, 2.0), ("small", 400, 3.0), ("$x^", 400, 1.0)],
)


def bars_of(axes: Any) -> list[tuple[float, float, float]]:
    return [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in axes.patches]


def test_matplotlib_draws_each_bar_where_it_belongs() -> None:
    (axes,) = LENGTHS.draw("matplotlib").axes
    assert bars_of(axes) == [(2, 1, 1), (3, 1, 0), (4, 2, 3)]
    labels = axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()
    assert labels == ("Lengths", "tokens", "documents", "log")


def test_altair_draws_each_bar_where_it_belongs() -> None:
    pytest.importorskip("altair")
    chart = LENGTHS.draw("altair").to_dict()
    assert chart["data"]["values"] == [
        {"from": 2, "to": 3, "documents": 1},
        {"from": 3, "to": 4, "documents": 0},
        {"from": 4, "to": 6, "documents": 3},
    ]
    assert chart["title"] == "Lengths"
    x, y = chart["encoding"]["x"], chart["encoding"]["y"]
    assert (x["title"], x["scale"]["type"], y["title"]) == ("tokens", "log", "documents")


def test_the_line_goes_through_what_no_other_point_beats() -> None:
    assert TOKENIZERS.best == [("small", 400, 3.0), ("big", 900, 4.0)]


def test_matplotlib_names_points_and_draws_the_line_through_the_best() -> None:
    figure = TOKENIZERS.draw("matplotlib")
    figure.canvas.draw()  # "$x^" would be no formula
    (axes,) = figure.axes
    (line,), (dots,) = axes.lines, axes.collections
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([400, 900], [3.0, 4.0])
    assert dots.get_offsets().tolist() == [[900, 4.0], [500, 2.0], [400, 3.0], [400, 1.0]]
    assert [text.get_text() for text in axes.texts] == ["big", "worse", "small", "$x^"]


def test_altair_names_points_and_draws_the_line_through_the_best() -> None:
    pytest.importorskip("altair")
    line, dots, names = TOKENIZERS.draw("altair").to_dict()["layer"]
    assert [row["name"] for row in line["data"]["values"]] == ["small", "big"]
    assert [row["name"] for row in dots["data"]["values"]] == ["big", "worse", "small", "$x^"]
    assert names["encoding"]["text"]["field"] == "name"
    kinds = [layer["mark"]["type"] for layer in (line, dots, names)]
    assert kinds == ["line", "circle", "text"]


@pytest.mark.parametrize(
    ("installed", "drawn_with"),
    [({"altair", "matplotlib"}, "altair"), ({"matplotlib"}, "matplotlib")],
)
def test_altair_draws_if_it_is_installed(
    installed: set[str], drawn_with: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(installed, monkeypatch)
    monkeypatch.setattr(Histogram, "_in_altair", lambda self: "altair")
    monkeypatch.setattr(Histogram, "_in_matplotlib", lambda self: "matplotlib")
    assert LENGTHS.draw() == drawn_with


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(set(), monkeypatch)
    with pytest.raises(UserError, match="no library that draws charts is installed") as caught:
        LENGTHS.draw()
    assert caught.value.hint == "pip install altair, or pip install matplotlib"
    with pytest.raises(UserError, match="matplotlib is not installed") as caught:
        LENGTHS.draw("matplotlib")
    assert caught.value.hint == "pip install matplotlib"
    with pytest.raises(UserError, match="library must be altair or matplotlib") as caught:
        LENGTHS.draw("plotly")  # type: ignore[arg-type]
    assert caught.value.why == "got 'plotly'"


def pretend(installed: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these of the libraries can be imported."""

    def import_module(name: str) -> Any:
        if name not in installed:
            raise ModuleNotFoundError(name)

    monkeypatch.setattr(charts, "import_module", import_module)


# small pictures


def test_a_histogram_is_a_picture_with_its_ends_named() -> None:
    assert rectangles(LENGTHS.picture()) == [
        "0.0,32.0,105.7,16.0",
        "106.7,48.0,105.7,0.0",
        "213.3,0.0,105.7,48.0",
    ]
    assert texts(LENGTHS.picture()) == ["Lengths", "2", "6 tokens"]


def test_rows_are_drawn_with_their_segments_and_without_padding() -> None:
    drawn = pictures.rows([[4, 4], [6]], 8, "two rows")
    assert rectangles(drawn) == ["0.0,0,160.0,10", "160.0,0,160.0,10", "0.0,12,240.0,10"]
    assert re.findall(r'opacity="(\S+)" x=', drawn) == ["0.75", "0.4", "0.75"]
    assert texts(drawn) == ["two rows", "two rows", ""]


def test_segments_that_are_too_narrow_to_see_are_drawn_together() -> None:
    assert len(rectangles(pictures.rows([[1] * 100_000], 100_000, "a long row"))) == 320


def test_bars_have_names_and_values_and_keep_markup_as_text() -> None:
    drawn = pictures.bars([("<b>" + "a" * 40 + ".json", 2.0, "2.00"), ("b", 1.0, "1.00")], "bars")
    assert rectangles(drawn) == ["160,0,110.0,10", "160,12,55.0,10"]
    name = "&lt;b&gt;aaaaaaaaaa…aaaaaaaaa.json"
    assert texts(drawn) == ["bars", name, "2.00", "b", "1.00", "bars", ""]


def rectangles(picture: str) -> list[str]:
    """x, y, width and height of each, in the order of the picture."""
    found = []
    for attributes in re.findall(r"<rect ([^>]*)>", picture):
        values = dict(re.findall(r'(\w+)="([^"]*)"', attributes))
        found.append(",".join(values[name] for name in ("x", "y", "width", "height")))
    return found


def texts(picture: str) -> list[str]:
    return re.findall(r"<(?:title|text)[^>]*>([^<]*)<", picture)

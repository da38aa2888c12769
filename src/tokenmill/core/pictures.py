"""Small pictures as inline SVG, without a script: for notebooks, and for pages that change."""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.core.html import Html, element, escaped

WIDTH, HEIGHT, LABELS = 320, 48, 12
"""Pixels: the size of a picture, and of the line of labels below it."""


def histogram(values: Sequence[float], first: str, last: str, title: str) -> Html:
    """Bars of equal width, the highest as high as the picture; labels name the first and last."""
    step, top = WIDTH / max(len(values), 1), max(values, default=0) or 1
    bars = [
        element(
            "rect",
            x=f"{at * step:.1f}",
            y=f"{HEIGHT * (1 - value / top):.1f}",
            width=f"{max(step - 1, 1):.1f}",
            height=f"{HEIGHT * value / top:.1f}",
        )
        for at, value in enumerate(values)
    ]
    return _picture(title, first, last, bars)


def curve(values: Sequence[float], first: str, last: str, title: str) -> Html:
    """A line through values at equal distances; the picture is as high as the highest."""
    step, top = WIDTH / max(len(values) - 1, 1), max(values, default=0) or 1
    places = (
        f"{at * step:.1f},{HEIGHT * (1 - value / top):.1f}" for at, value in enumerate(values)
    )
    line = element(
        "polyline",
        points=" ".join(places),
        fill="none",
        stroke="currentColor",
        stroke_width="1.5",
    )
    return _picture(title, first, last, [line])


def share_bar(share: float, title: str) -> Html:
    """A bar that is filled to a share of 1."""
    filled = f"{WIDTH * max(0.0, min(share, 1.0)):.1f}"
    frame = element("rect", width=str(WIDTH), height="8", opacity="0.15")
    return _svg(title, 8, [frame, element("rect", width=filled, height="8")])


def _picture(title: str, first: str, last: str, shapes: Sequence[Html]) -> Html:
    below = {"y": str(HEIGHT + LABELS - 1), "font_size": "10", "opacity": "0.65"}
    labels = [
        element("text", escaped(first), x="0", **below),
        element("text", escaped(last), x=str(WIDTH), text_anchor="end", **below),
    ]
    return _svg(title, HEIGHT + LABELS, [*shapes, *labels])


def _svg(title: str, height: int, shapes: Sequence[Html]) -> Html:
    return element(
        "svg",
        element("title", escaped(title)),
        *shapes,
        viewBox=f"0 0 {WIDTH} {height}",
        width=str(WIDTH),
        height=str(height),
        fill="currentColor",
        role="img",
        aria_label=title,
        style="max-width:100%;height:auto",
    )

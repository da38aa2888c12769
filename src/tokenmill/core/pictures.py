"""Small pictures as inline SVG, without a script: for notebooks, and for pages that change."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tokenmill.core.html import Html, element, escaped

WIDTH, HEIGHT, LABELS, ROW = 320, 48, 14, 12
"""Pixels: the size of a picture, of the line of labels below it, and of a row with its gap."""
STYLE = "max-width:100%;height:auto"
"""The only style in a picture, which a content policy can name."""


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
    return _picture(title, first, last, bars, HEIGHT)


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
    return _picture(title, first, last, [line], HEIGHT)


def share_bar(share: float, title: str) -> Html:
    """A bar that is filled to a share of 1."""
    filled = f"{WIDTH * max(0.0, min(share, 1.0)):.1f}"
    frame = element("rect", width=str(WIDTH), height="8", opacity="0.15")
    return _svg(title, 8, [frame, element("rect", width=filled, height="8")])


def rows(lengths: Sequence[Sequence[float]], row_length: float, title: str) -> Html:
    """Rows as bars, one below the other: their segments in two shades, and padding empty."""
    shapes = []
    for number, segments in enumerate(lengths):
        start, shades = 0.0, itertools.cycle(("0.75", "0.4"))
        for at, tokens in enumerate(itertools.accumulate(segments), 1):
            stop = min(WIDTH * tokens / row_length, WIDTH)
            if stop - start < 1 and at < len(segments):
                continue  # too narrow to see: drawn with the next one
            x, width = f"{start:.1f}", f"{stop - start:.1f}"
            place = {"y": str(number * ROW), "height": str(ROW - 2), "opacity": next(shades)}
            shapes.append(element("rect", x=x, width=width, **place))
            start = stop
    return _picture(title, title, "", shapes, len(lengths) * ROW)


def attention_mask(segments: Sequence[tuple[int, int]], length: int, title: str) -> Html:
    """What each token of a row attends to: a triangle for each segment (first token, tokens)."""
    scale = WIDTH / max(length, 1)
    frame = element("rect", width=str(WIDTH), height=str(WIDTH), opacity="0.1")
    shapes = []
    for start, tokens in segments:
        near, far = start * scale, (start + tokens) * scale
        corners = f"{near:.2f},{near:.2f} {near:.2f},{far:.2f} {far:.2f},{far:.2f}"
        shapes.append(element("polygon", points=corners, opacity="0.75"))
    return _svg(title, WIDTH, [frame, *shapes])


def _picture(title: str, first: str, last: str, shapes: Sequence[Html], height: int) -> Html:
    below = {"y": str(height + LABELS - 4), "font_size": "10", "opacity": "0.65"}
    labels = [
        element("text", escaped(first), x="0", **below),
        element("text", escaped(last), x=str(WIDTH), text_anchor="end", **below),
    ]
    return _svg(title, height + LABELS, [*shapes, *labels])


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
        style=STYLE,
    )

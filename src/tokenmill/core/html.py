"""Pieces of HTML: facts, tables, sections. All text is escaped here and nowhere else.

Functions return markup, as `Html`; they escape every other text that they get.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import NewType

from tokenmill.core.tables import Cell, Fact, Number
from tokenmill.core.values import safe_text

Html = NewType("Html", str)
MOST_CHARACTERS = 4_000
"""The longest text that a page shows; documents and names can have any length."""


def escaped(text: str, most: int = MOST_CHARACTERS) -> Html:
    """Text as it is, for a page: markup, control characters and overrides of direction are shown.

    Of a text longer than `most` characters, the page shows the first ones and how many follow.
    """
    rest = f" … and {len(text) - most:,} more characters" if len(text) > most else ""
    return Html(html.escape(safe_text(text[:most])) + rest)


def joined(parts: Iterable[Html]) -> Html:
    """Markup, one piece below the other."""
    return Html("\n".join(parts))


def element(name: str, *content: Html, **attributes: str) -> Html:
    """An element with its attributes; `class_` is class, and `data_value` is data-value."""
    pairs = (
        f' {key.rstrip("_").replace("_", "-")}="{escaped(text)}"'
        for key, text in attributes.items()
    )
    return Html(f"<{name}{''.join(pairs)}>{''.join(content)}</{name}>")


def facts(pairs: Iterable[Fact]) -> Html:
    """A list of names and values."""
    rows = (element("dt", escaped(name)) + element("dd", escaped(value)) for name, value in pairs)
    return element("dl", *map(Html, rows))


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = "") -> Html:
    """A table; a page sorts it by a click on a header. The first column names the rows."""
    rows = list(rows)
    heads = [
        element("th", escaped(name), scope="col", **_class_of(rows, at))
        for at, name in enumerate(header)
    ]
    lines = [element("tr", *(_cell(at, value) for at, value in enumerate(row))) for row in rows]
    title = [element("caption", escaped(caption))] if caption else []
    body = [element("thead", element("tr", *heads)), element("tbody", *lines)]
    return element("div", element("table", *title, *body), class_="wide", tabindex="0")


def _class_of(rows: Sequence[Sequence[Cell]], at: int) -> dict[str, str]:
    """The class of a header: numbers stand right."""
    return {"class_": "number"} if rows and isinstance(rows[0][at], Number) else {}


def _cell(at: int, value: Cell) -> Html:
    if isinstance(value, Number):
        return element("td", escaped(value), data_value=repr(value.value))
    return element("td" if at else "th", escaped(value), **({} if at else {"scope": "row"}))


def section(title: str, *content: Html, about: str = "") -> Html:
    """A part of a page with a heading, an address, and a sentence about what it shows."""
    name = title.lower().replace(" ", "-")
    lead = [element("p", escaped(about), class_="about")] if about else []
    return element("section", element("h2", escaped(title)), *lead, *content, id=name)


def card(title: str, pairs: Iterable[Fact], picture: Html | None = None) -> Html:
    """A small table and a picture for a notebook, which may drop style sheets."""
    cell = "text-align:left;vertical-align:top;padding:1px 1em 1px 0;border:0;background:none"
    lines = [
        element(
            "tr",
            element("th", escaped(name), style=f"{cell};font-weight:normal;opacity:.65"),
            element("td", escaped(value), style=cell),
        )
        for name, value in pairs
    ]
    style = "border-collapse:collapse;border:0;margin:.3em 0;color:inherit"
    table_ = element("table", *lines, style=style)
    heading = element("strong", escaped(title))
    drawn = [picture] if picture is not None else []
    return element("div", heading, table_, *drawn, style="font-size:.9em")

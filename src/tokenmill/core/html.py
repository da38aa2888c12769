"""Pieces of HTML: facts, tables, sections. All text is escaped here and nowhere else.

Functions return markup, as `Html`; they escape every other text that they get.
"""

from __future__ import annotations

import html
import re
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


def text(name: str, content: str, **attributes: str) -> Html:
    """An element that holds a text."""
    return element(name, escaped(content), **attributes)


def about(content: str) -> Html:
    """A paragraph that explains."""
    return text("p", content, class_="about")


def listed(items: Iterable[str]) -> Html:
    """A list of sentences, each without its full stop."""
    return element("ul", *(text("li", f"{item[:1].upper()}{item[1:]}.") for item in items))


def pair(*parts: Html) -> Html:
    """Parts that stand side by side on a wide page."""
    return element("div", *parts, class_="pair")


def facts(pairs: Iterable[Fact]) -> Html:
    """A list of names and values."""
    rows = (text("dt", name) + text("dd", value) for name, value in pairs)
    return element("dl", *map(Html, rows))


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = "") -> Html:
    """A table; a page sorts it by a click on a header. The first column names the rows."""
    rows = list(rows)
    heads = [text("th", name, scope="col", **_class_of(rows, at)) for at, name in enumerate(header)]
    lines = [element("tr", *(_cell(at, value) for at, value in enumerate(row))) for row in rows]
    title = [text("caption", caption)] if caption else []
    body = [element("thead", element("tr", *heads)), element("tbody", *lines)]
    return element("div", element("table", *title, *body), class_="wide", tabindex="0")


def _class_of(rows: Sequence[Sequence[Cell]], at: int) -> dict[str, str]:
    """The class of a header: numbers stand right."""
    return {"class_": "number"} if rows and isinstance(rows[0][at], Number) else {}


def _cell(at: int, value: Cell) -> Html:
    if isinstance(value, Number):
        return text("td", value, data_value=repr(value.value))
    return text("td", value) if at else text("th", value, scope="row")


def section(title: str, *content: Html) -> Html:
    """A part of a page with a heading and an address."""
    return element("section", text("h2", title), *content, id=title.lower().replace(" ", "-"))


def contents(sections: Iterable[Html]) -> Html:
    """Links to sections, by their headings."""
    found = (re.match('<section id="(.*?)"><h2>(.*?)</h2>', each) for each in sections)
    links = (element("a", Html(head[2]), href=f"#{head[1]}") for head in found if head)
    return element("nav", *links, aria_label="Sections")


def card(title: str, pairs: Iterable[Fact], picture: Html | None = None) -> Html:
    """A small table and a picture for a notebook, which may drop style sheets."""
    cell = "text-align:left;vertical-align:top;padding:1px 1em 1px 0;border:0;background:none"
    lines = [
        element(
            "tr",
            text("th", name, style=f"{cell};font-weight:normal;opacity:.65"),
            text("td", value, style=cell),
        )
        for name, value in pairs
    ]
    style = "border-collapse:collapse;border:0;margin:.3em 0;color:inherit"
    table_ = element("table", *lines, style=style)
    drawn = [picture] if picture is not None else []
    return element("div", text("strong", title), table_, *drawn, style="font-size:.9em")

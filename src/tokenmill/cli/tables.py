"""Tables, lists of facts, bars and JSON."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tokenmill.cli.terminal import BOLD, YELLOW, painted, safe_text, use_colour

WARNINGS = ("rejected", "unknown", "lost", "failed", "damaged", "error")
"""Facts that are shown in yellow unless they begin with 0."""
BAR = 20
"""Width of a full bar in characters."""


def print_json(value: object) -> None:
    """Print a value as one line of JSON, and flush it."""
    print(msgspec.json.encode(value).decode(), flush=True)


def fact_lines(
    facts: Iterable[tuple[str, str]], width: int, *, colour: bool | None = None
) -> list[str]:
    """One line per fact, its name in `width` characters; bold names on a terminal."""
    if colour is None:
        colour = use_colour()
    if not colour:
        return [f"{name:>{width}}  {value}" for name, value in facts]
    return [
        f"{painted(name.rjust(width), BOLD)}  "
        f"{painted(value, YELLOW) if _warns(name, value) else value}"
        for name, value in facts
    ]


def _warns(name: str, value: str) -> bool:
    return name in WARNINGS and value.partition(" ")[0] not in ("0", "none")


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print one fact per line, its name first. Values are made safe for the terminal.

    On a terminal, long values are folded below their beginning.
    """
    width = max(len(name) for name, _ in facts)
    shown = [(name, safe_text(value)) for name, value in facts]
    if use_colour():
        room = max(shutil.get_terminal_size().columns - width - 2, 20)
        folded = [(name, textwrap.wrap(value, room) or [""]) for name, value in shown]
        shown = [
            (name if first else "", line)
            for name, lines in folded
            for first, line in ((line is lines[0], line) for line in lines)
        ]
    print("\n".join(fact_lines(shown, width)))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the lines of a table."""
    print("\n".join(table_lines(header, rows)))


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], best: str = ""
) -> Iterator[str]:
    """The lines of a table: the first column is aligned left, the others right.

    On a terminal, the header is bold, and so are rows whose first cell is `best` or ends with " *".
    """
    lines = [list(header), *([safe_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        first, *others = zip(line, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        text = "  ".join(cells).rstrip()
        is_bold = number == 0 or line[0] == best or line[0].endswith(" *")
        yield painted(text, BOLD) if is_bold and use_colour() else text


def bar(share: float, empty: str = " ", width: int = BAR) -> str:
    """Draw a share as a bar, in eighths of a character; the rest is filled with `empty`."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, empty)

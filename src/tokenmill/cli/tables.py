"""Tables and lists of facts: drawn by rich on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from tokenmill.cli.terminal import BOLD, YELLOW, painted, safe_text, use_colour

WARNINGS = ("rejected", "unknown", "lost", "failed", "damaged", "error")
"""Facts that are shown in yellow unless they begin with 0."""


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
    """Print one fact per line, its name first. Values are made safe for the terminal."""
    shown = [(name, safe_text(value)) for name, value in facts]
    if not use_colour():
        width = max(len(name) for name, _ in shown)
        print("\n".join(f"{name:>{width}}  {value}" for name, value in shown))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in shown:
        table.add_row(name, Text(value, "yellow" if _warns(name, value) else ""))
    Console().print(table)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column is aligned left, the others right.

    If the terminal is too narrow, the table is printed as plain lines: nobody can read numbers
    folded inside a cell.
    """
    rows = [[safe_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    room = shutil.get_terminal_size().columns
    if not use_colour() or sum(widths) + 2 * len(widths) > room:
        for row in (header, *rows):
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
            print("  ".join(cells).rstrip())
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row), style="bold" if row[0].endswith(" *") else None)
    Console().print(table)

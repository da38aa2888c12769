"""Tables and lists of facts: drawn where there is a terminal, plain lines where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from tokenmill.cli.terminal import safe_text, use_colour


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """One fact a line, its name first; values may come from outside."""
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
        table.add_row(name, Text(value))
    Console().print(table)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of texts: the first column to the left, the others to the right.

    Plain lines, too, where the terminal is too narrow: folded numbers cannot be read.
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
        table.add_row(*map(Text, row))
    Console().print(table)

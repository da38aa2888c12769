"""Tables, lists of facts, bars and JSON."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

import msgspec

from tokenmill.cli.terminal import (
    BOLD,
    YELLOW,
    columns_of,
    fitted,
    folded,
    painted,
    use_colour,
)
from tokenmill.core.errors import one_line

WARNINGS = ("rejected", "unknown", "lost", "failed", "damaged", "error")
"""Facts that are shown in yellow unless they begin with 0."""
BAR = 20
"""Width of a full bar in characters."""


def print_json(value: object) -> None:
    """Print a value as one line of JSON, and flush it."""
    print(msgspec.json.encode(value).decode(), flush=True)


def fact_lines(
    facts: Iterable[tuple[str, str]], width: int, stream: TextIO | None = None
) -> list[str]:
    """One line per fact, its name in `width` characters.

    Values are made safe for the terminal. On one, long values are folded below their beginning, and
    names are bold. `stream` is where the lines will be printed, by default standard output.
    """
    stream = stream or sys.stdout
    columns, colour = columns_of(stream), use_colour(stream)
    room = sys.maxsize if columns is None else max(columns - width - 2, 20)
    lines = []
    for name, value in facts:
        warns = colour and name in WARNINGS and value.partition(" ")[0] not in ("0", "none")
        for number, part in enumerate(folded(one_line(value), room)):
            label = (name if number == 0 else "").rjust(width)
            text = painted(part, YELLOW) if warns else part
            lines.append(f"{painted(label, BOLD) if colour else label}  {text}")
    return lines


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print one fact per line, its name first."""
    width = max(len(name) for name, _ in facts)
    print("\n".join(fact_lines(facts, width)))


def next_text(*commands: Sequence[str]) -> str:
    """The lines that suggest commands to run next, each given as its words."""
    return fitted("next: " + "\n  or: ".join(one_line(shlex.join(words)) for words in commands))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the lines of a table."""
    print("\n".join(table_lines(header, rows)))


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], best: str = ""
) -> Iterator[str]:
    """The lines of a table: the first column is aligned left, the others right.

    On a terminal, the header is bold, and so are rows whose first cell is `best` or ends with " *".
    A table that is wider than the terminal becomes several, each with the first column. If that
    leaves no room for another one, its cells are on lines of their own.
    """
    lines = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    room = columns_of(sys.stdout) or sys.maxsize
    is_alone = widths[0] + 2 + max(widths[1:], default=0) > room
    if is_alone:
        widths[0] = 0
    for block, columns in enumerate(_blocks(widths, room)):
        if block:
            yield ""
        for number, line in enumerate(lines):
            first = f"{line[0]}\n" if is_alone else line[0].ljust(widths[0])
            text = "  ".join([first, *(line[at].rjust(widths[at]) for at in columns)]).rstrip()
            is_bold = number == 0 or line[0] == best or line[0].endswith(" *")
            yield painted(text, BOLD) if is_bold and use_colour() else text


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """The columns after the first, in groups that fit beside it."""
    blocks: list[list[int]] = [[]]
    used = widths[0]
    for at, width in enumerate(widths[1:], 1):
        if blocks[-1] and used + 2 + width > room:
            blocks.append([])
            used = widths[0]
        blocks[-1].append(at)
        used += 2 + width
    return blocks


def bar(share: float, empty: str = " ", width: int = BAR) -> str:
    """Draw a share as a bar, in eighths of a character; the rest is filled with `empty`."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, empty)

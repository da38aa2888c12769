"""Tables, lists of facts, bars and JSON."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

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
from tokenmill.core.values import shortened

if TYPE_CHECKING:
    from tokenmill.reports.lengths.counts import Bin

WARNINGS = ("rejected", "unknown", "lost", "failed", "damaged", "error")
"""Facts that are shown in yellow unless they begin with 0."""
BAR = 20
"""Width of a full bar in characters."""
SHORTEST_NAME = 12
"""Characters of a name that a narrow terminal still shows."""


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


def bar_room(beside: int, most: int = BAR) -> int:
    """The width of bars with `beside` characters on their line; 0 except on a terminal with room.

    TERM=dumb turns bars off.
    """
    columns = columns_of(sys.stdout)
    if columns is None or os.environ.get("TERM") == "dumb" or columns < beside + 4:
        return 0
    return min(columns - beside, most)


def with_bar(text: str, share: float, beside: int) -> str:
    """A text with a bar of a share, if a terminal has room; `beside` characters precede them."""
    room = bar_room(beside + len(text) + 2)
    return f"{text}  {bar(share, '·', room)}" if room else text


def bar_lines(rows: Sequence[tuple[str, float, str]]) -> Iterator[str]:
    """A name, a bar and a text on each line; the bar of the largest value is the longest."""
    most_of_name = max((columns_of(sys.stdout) or sys.maxsize) // 2 - 4, SHORTEST_NAME)
    names = [shortened(one_line(name), most_of_name) for name, _, _ in rows]
    width, largest = max(map(len, names), default=0), max((row[1] for row in rows), default=0) or 1
    room = bar_room(width + 4 + max((len(text) for *_, text in rows), default=0), 2 * BAR)
    for name, (_, value, text) in zip(names, rows, strict=True):
        drawn = f"{bar(value / largest, width=room)}  " if room else ""
        yield f"{name:>{width}}  {drawn}{text}"


def length_lines(bins: Sequence[Bin], sample: str = "") -> list[str]:
    """The share of documents in each bin of lengths, as a bar, and the share of tokens."""
    documents, tokens = sum(each.documents for each in bins), sum(each.tokens for each in bins)
    rows = []
    for each in bins:
        shares = f"{each.documents / documents:6.1%} {each.tokens / tokens:6.1%}"
        rows.append((str(each), each.documents, shares))
    title = f"lengths in tokens, shares of documents and of tokens{sample}"
    return [*fitted(title).split("\n"), "", *bar_lines(rows)]

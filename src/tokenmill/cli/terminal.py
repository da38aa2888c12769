"""Text for people: numbers, colours on a terminal, and names from outside that are safe on one."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import TextIO

BOLD, RED, GREEN, YELLOW, CYAN = 1, 31, 32, 33, 36
HEADING = re.compile(r"^(\w[\w ]*:)(?=$| tokenmill )", re.MULTILINE)
LABEL = re.compile(r" +\S+ {2,}| *(?:(?:error:|where:|why:|next:|or:|-) |)")
"""What is left of the text of a line: a name in a column of names, or a label."""
EXPLAINED = re.compile(r"^( +\S+ \S.*?) {3,}")
"""An example and three spaces; what follows explains it."""
COMMAND = re.compile(
    r"(?:^|(?<=: ))(?!.*(?:; |, or | --help| can | lists | prints | starts ))"
    r"(?:tokenmill|pip install) .*$"
)
"""A command that ends a text; not a sentence about one."""
KEPT = re.compile(r"tokenmill [a-z -]*--[a-z-]+")
"""A command inside a sentence."""
FLAGS = re.compile(r"^  (-[^ ].*?|[a-z]+)(?=  |$)", re.MULTILINE)


def use_colour(stream: TextIO | None = None) -> bool:
    """Whether a stream, by default standard output, is a terminal that may show colours.

    The variable NO_COLOR, or TERM=dumb, turns colours off.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return (stream or sys.stdout).isatty()


def columns_of(stream: TextIO) -> int | None:
    """The width of a terminal; None if the stream is none."""
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):  # not a terminal, as in tests
        return 80


def painted(text: str, *codes: int) -> str:
    """Text between the escape codes of a terminal: BOLD, RED, ..."""
    return f"\x1b[{';'.join(map(str, codes))}m{text}\x1b[0m"


def coloured_help(text: str) -> str:
    """A help text with bold headings and coloured names on a terminal, else unchanged."""
    if not use_colour():
        return text
    text = HEADING.sub(lambda found: painted(found[1], BOLD), text)
    return FLAGS.sub(lambda found: f"  {painted(found[1], CYAN)}", text)


def folded_help(text: str, width: int) -> str:
    """A help text of sentences, indented names and indented commands, in `width` columns."""
    lines = [
        line if len(line) <= width else EXPLAINED.sub(r"\1\n      ", line)
        for line in text.replace(" \\\n      ", " ").splitlines()
    ]
    return _fitted("\n".join(lines), width)


def fitted(text: str, stream: TextIO | None = None) -> str:
    """A message whose lines fit the terminal of a stream, by default standard output.

    Lines continue below the beginning of their text, after "next: " or "- ". Without a terminal,
    the message is unchanged.
    """
    columns = columns_of(stream or sys.stdout)
    return text if columns is None else _fitted(text, columns)


def _fitted(text: str, columns: int) -> str:
    lines = []
    for line in text.split("\n"):
        found = LABEL.match(line)
        start = found.end() if found else 0
        first, *others = folded(line[start:], columns - start)
        lines += [line[:start] + first, *(" " * start + other for other in others)]
    return "\n".join(lines)


def folded(text: str, room: int) -> list[str]:
    """The lines of a text in `room` characters; words are never cut.

    A command stays whole, or continues after a backslash, so that one can copy it.
    """
    if len(text) <= room:
        return [text]
    found = COMMAND.search(text)
    if found is None:
        text = KEPT.sub(lambda found: found[0].replace(" ", "\xa0"), text)
        return [line.replace("\xa0", " ") for line in _wrapped(text, room)]
    before = folded(text[: found.start()].rstrip(), room) if found.start() else []
    *lines, last = _wrapped(found[0], room - 2, "    ")
    return [*before, *(f"{line} \\" for line in lines), last]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )

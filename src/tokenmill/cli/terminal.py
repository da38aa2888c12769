"""Text for people: numbers, colours on a terminal, and names from outside that are safe on one."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import TextIO

from tokenmill.core.values import duration_text as duration_text
from tokenmill.core.values import safe_text as safe_text

BOLD, RED, GREEN, YELLOW, CYAN = 1, 31, 32, 33, 36
HEADING = re.compile(r"^(\w[\w ]*:)(?=$| tokenmill )", re.MULTILINE)
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
    """A help text of sentences and indented commands, on lines of at most `width` characters."""
    lines = text.splitlines()
    return "\n".join(_folded(line, width) if len(line) > width else line for line in lines)


def _folded(line: str, width: int) -> str:
    is_command = line.startswith(" ")
    indent, end = (" " * 6, " \\\n") if is_command else ("", "\n")
    line = line.removesuffix(" \\")
    parts = textwrap.wrap(
        line, width - 2, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return end.join(parts)

"""Text from outside that is shown on a terminal."""

from __future__ import annotations

import os
import sys


def use_colour() -> bool:
    """Whether standard output is a terminal whose user has not asked for plain text."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def safe_text(text: str) -> str:
    """Text that cannot steer the terminal: control characters are shown, not sent."""
    shown = (c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)
    return "".join(shown)


def _escaped(character: str) -> str:
    """The escape that a Python string has for a character: a form for each width."""
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

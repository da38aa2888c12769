"""Text from outside that is shown on a terminal."""

from __future__ import annotations


def safe_text(text: str) -> str:
    """Text that cannot steer the terminal: control characters are shown, not sent."""
    shown = (c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return "".join(shown)

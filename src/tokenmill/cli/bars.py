"""Shares drawn as bars."""

from __future__ import annotations

BAR = 20
"""Width of a full bar in characters."""


def bar(share: float, empty: str = " ") -> str:
    """Draw a share as a bar, in eighths of a character; the rest is filled with `empty`."""
    eighths = round(max(0.0, min(share, 1.0)) * BAR * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(BAR, empty)

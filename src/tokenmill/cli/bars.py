"""Shares as pictures."""

from __future__ import annotations

BAR = 20
"""Cells of a full one."""


def bar(share: float, empty: str = " ") -> str:
    """A share, in eighths of a cell; cells without any of it show `empty`."""
    eighths = round(max(0.0, min(share, 1.0)) * BAR * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(BAR, empty)

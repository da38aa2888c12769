"""Numbers formatted for people."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Format a count: "1 document", "2,000 documents"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size_text(num_bytes: float) -> str:
    """Format a number of bytes: "1.50 GB"."""
    for unit in ("B", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.2f} GB"


def duration_text(seconds: float) -> str:
    """Format a duration: "1:02:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def unknown_facts(number: int, tokens: int) -> list[tuple[str, str]]:
    """The line about unknown tokens; empty if there are none."""
    if not number:
        return []
    return [
        ("unknown", f"{counted(number, 'unknown token')}, {number / max(tokens, 1):.2%} of all")
    ]

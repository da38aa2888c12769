"""Functions that make texts, as users' modules hold them."""

from __future__ import annotations

from typing import Any


def titled(record: dict[str, Any]) -> str | None:
    """One text, or none for a record without a body."""
    return f"{record['title']}: {record['body']}" if record["body"] else None


def sentences(record: dict[str, Any]) -> list[str]:
    """A text for each sentence; the record that it is given may be changed."""
    return [part.strip() for part in record.pop("body").split(".") if part.strip()]


def masked(record: dict[str, Any]) -> dict[str, Any]:
    """The title carries no loss."""
    text = f"{record['title']}\n{record['body']}"
    return {"text": text, "without": [[0, len(record["title"])]]}


def failing(record: dict[str, Any]) -> str:
    """Fails on one record."""
    return str(record["titel"] if record["title"] == "Title 4" else record["title"])


def number(record: dict[str, Any]) -> int:
    """No text."""
    return len(record)

"""A record of which requests a store has allowed, to tell expired credentials from wrong ones.

Some stores refuse expired and wrong credentials in the same way. Processes that a run starts
inherit the record.
"""

from __future__ import annotations

import os
from typing import Literal

Doing = Literal["read", "write", "list", "delete"]

VARIABLE = "TOKENMILL_LET_IN"

_known = set(os.environ.get(VARIABLE, "").split())


def note(store: str, doing: Doing) -> None:
    """Record that a store has allowed a request of this kind."""
    _known.add(f"{doing}:{store}")


def was_let_in(store: str, doing: Doing) -> bool:
    """Return whether a store has allowed a request of this kind in this run."""
    return f"{doing}:{store}" in _known


def has_answered(store: str) -> bool:
    """Return whether a store has allowed any request in this run."""
    return any(known.endswith(f":{store}") for known in _known)


def admission_environment() -> dict[str, str]:
    """Return environment variables that pass the record to a new process, without secrets."""
    return {VARIABLE: " ".join(sorted(_known))}

"""What stores have let this run do, so that a refusal later on is told from a mistake.

Credentials that expire are refused like wrong ones by stores that do not say why. Processes that a
run starts learn from it what it was let do.
"""

from __future__ import annotations

import os
from typing import Literal

Doing = Literal["read", "write", "list", "delete"]

VARIABLE = "TOKENMILL_LET_IN"

_known = set(os.environ.get(VARIABLE, "").split())


def note(store: str, doing: Doing) -> None:
    """A store has carried out such a request."""
    _known.add(f"{doing}:{store}")


def was_let_in(store: str, doing: Doing) -> bool:
    """Whether a store has carried out such a request of this run before."""
    return f"{doing}:{store}" in _known


def has_answered(store: str) -> bool:
    """Whether a store has carried out any request of this run before."""
    return any(known.endswith(f":{store}") for known in _known)


def admission_environment() -> dict[str, str]:
    """Variables that tell a new process of this run what is known here; nothing is secret."""
    return {VARIABLE: " ".join(sorted(_known))}

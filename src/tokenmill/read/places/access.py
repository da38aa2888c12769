"""How files that are elsewhere are to be read, and what is heard while they are fetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ReadMode = Literal["download", "stream", "sample"]
"""Kept on this machine first, if the place does that; read where they are; read where they are
unless they are kept already.
"""


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """One moment while files are fetched."""

    done_bytes: int
    """With what was kept before."""
    total_bytes: int
    done_files: int
    num_files: int


FetchListener = Callable[[FetchProgress], None]


@dataclass(frozen=True, slots=True)
class Access:
    """How files that are elsewhere are to be read."""

    mode: ReadMode = "download"
    cache_dir: str | None = None
    """Where they are kept; None: the usual folder of the place."""
    listener: FetchListener = lambda progress: None

"""The files of one unit: written under temporary names, flushed, and then given their own names."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path


class PartFiles:
    """Files `<stem>.<part>` in one folder; an entry's name is its part."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder
        self._stem = stem

    def path(self, part: str) -> Path:
        """Where a part is written."""
        return self._folder / f"{self._stem}.{part}"

    def discard(self, parts: Sequence[str]) -> None:
        """Remove what was written."""
        for part in parts:
            with contextlib.suppress(OSError):  # the next attempt clears its folder
                self.path(part).unlink(missing_ok=True)

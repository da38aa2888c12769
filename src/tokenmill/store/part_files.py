"""The files of one unit: written under temporary names, flushed, and then given their own names."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tokenmill.store.files import fsync_path, storage_errors
from tokenmill.store.manifest import FileEntry


class PartFiles:
    """Files `<stem>.<part>` in one folder; an entry's name is its part."""

    def __init__(self, folder: Path, stem: str, what: str) -> None:
        """`what` names the files in errors: "a shard"."""
        self._folder = folder
        self._stem = stem
        self._what = what

    def path(self, part: str) -> Path:
        """Where a part is written."""
        return self._folder / f"{self._stem}.{part}"

    def flush(self, entries: Sequence[FileEntry]) -> None:
        """Wait until the finished files are on the disk."""
        for entry in entries:
            path = self.path(entry.name)
            with storage_errors(f"flush {self._what}", path):
                fsync_path(path)

    def rename(self, entries: Sequence[FileEntry], folder: Path, stem: str) -> None:
        """Give the finished files their names in `folder`."""
        for entry in entries:
            path = self.path(entry.name)
            with storage_errors(f"rename {self._what}", path):
                path.replace(folder / f"{stem}.{entry.name}")
        with storage_errors("flush a folder", folder):
            fsync_path(folder)

    def discard(self, parts: Sequence[str]) -> None:
        """Remove what was written."""
        for part in parts:
            with contextlib.suppress(OSError):  # the next attempt clears its folder
                self.path(part).unlink(missing_ok=True)

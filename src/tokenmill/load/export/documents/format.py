"""What a format of documents consists of, and the file of tokens that all of them write."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt
import xxhash

from tokenmill.load.export.documents.selection import Selection, Stretch
from tokenmill.load.rows.token_source import Located
from tokenmill.store.exports import DocumentsManifest
from tokenmill.store.files import PIECE_BYTES
from tokenmill.store.manifest import FileEntry


class Index(Protocol):
    """Writes where the documents of a file are."""

    def append(self, located: Located) -> None:
        """Add documents."""

    def finish(self) -> FileEntry:
        """Flush the file to disk and describe it."""

    def close(self) -> None:
        """Close the file; if it is not finished, it is not wanted any more."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of documents."""

    stretches: Callable[[Selection], list[Stretch]]
    """Decides which documents each file gets."""
    index: Callable[..., Index] | None = None
    """Opens the index of a file, given its path without extension, the dtype, its number of
    documents, and where to write if it is not to be made."""
    copies_tokens: bool = True
    """Whether tokens are written, or only linked to."""
    describe: Callable[[DocumentsManifest, Path, Path], DocumentsManifest] | None = None
    """Adds files that trainers read, and what to give to them, to a manifest. The first folder
    becomes the second one."""


class TokenFile:
    """A file of tokens without a header, with its digest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by close()
        self._digest = xxhash.xxh3_128()

    def append(self, ids: npt.NDArray[Any]) -> None:
        """Add tokens."""
        data = memoryview(ids.data).cast("B")
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            self._digest.update(piece)
            while piece:  # a disk that is nearly full takes a part
                piece = piece[self._file.write(piece) :]

    def finish(self) -> FileEntry:
        """Flush the file to disk and describe it."""
        os.fsync(self._file.fileno())
        size = self._file.tell()
        return FileEntry(name=self._path.name, bytes=size, xxh3_128=self._digest.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

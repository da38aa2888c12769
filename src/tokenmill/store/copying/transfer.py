"""Concurrent transfer of files, each verified by its digest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import xxhash

from tokenmill.core.errors import StorageError, VerificationError
from tokenmill.core.records import Advance
from tokenmill.store.copying.contents import damaged
from tokenmill.store.copying.ends import CopyEnd
from tokenmill.store.files import storage_errors
from tokenmill.store.manifest import FileEntry

PROGRESS_SECONDS = 0.2
AGAIN = "run the same command again; it copies the missing files"


class _StoppedError(Exception):
    """Stops the transfer of a file because another file failed or the user stopped the copy."""


@dataclass(slots=True)
class Transfer:
    """Copies several files at a time."""

    origin: CopyEnd
    target: CopyEnd
    verify: bool
    files_at_once: int
    advance: Advance
    copied_files: int = 0
    copied_bytes: int = 0
    _done_bytes: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, files: Sequence[FileEntry], fresh: set[str]) -> None:
        """Copy files that the target does not have, and all files in `fresh`."""
        folders = sorted({_folder_of(file.name) for file in files})
        if self.origin.can_list:
            require_sizes(self.origin, files)
        there = self.target.sizes(folders)
        missing = [
            file for file in files if file.name in fresh or there.get(file.name) != file.bytes
        ]
        looked_at = files if self.verify else missing
        total = sum(file.bytes for file in (*missing, *(files if self.verify else ())))
        needed = {file.name for file in missing}
        with self.target.scratch() as scratch:

            def carry(file: FileEntry) -> None:
                self._carry(
                    file, scratch, is_needed=file.name in needed, is_there=file.name in there
                )

            self._each(looked_at, carry, total)
        self._require_arrived(folders, files)

    def _each(
        self, files: Sequence[FileEntry], work: Callable[[FileEntry], None], total: int
    ) -> None:
        """Process each file in threads; stop at the first error."""
        rest, running = iter(files), set[Future[None]]()
        with ThreadPoolExecutor(self.files_at_once, "copy") as pool:
            try:
                while True:
                    for file in islice(rest, 2 * self.files_at_once - len(running)):
                        running.add(pool.submit(work, file))
                    if not running:
                        return
                    done, running = wait(running, PROGRESS_SECONDS, FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    self.advance("copying", self._done_bytes, total)
            finally:
                self._stopped.set()
                pool.shutdown(cancel_futures=True)

    def _carry(self, file: FileEntry, scratch: Path, *, is_needed: bool, is_there: bool) -> None:
        """Copy a file if it is needed, or if `verify` finds that its copy is damaged."""
        is_good = not is_needed and self.verify and self._is_intact(file)
        if not is_good:
            if is_there:
                self.target.store.remove([file.name])
            self._copy(file, scratch)
            if self.verify and not self._is_intact(file):
                raise VerificationError(
                    "a file was damaged during the copy",
                    where=f"{self.target.location}/{file.name}",
                    why="the xxh3 digest of the copy differs from that of the written data",
                    hint=AGAIN,
                )

    def _copy(self, file: FileEntry, scratch: Path) -> None:
        path = self.origin.path(file.name)
        if path is not None and self.target.path(file.name) is None:  # upload it directly
            for _ in self._checked_pieces(file):
                pass
            self.target.store.add_files({file.name: path})
        else:
            path = scratch / xxhash.xxh3_128_hexdigest(file.name.encode())
            with storage_errors("write a file", path), open(path, "wb", buffering=0) as written:
                for piece in self._checked_pieces(file):
                    written.write(piece)
            self.target.store.add_files({file.name: path})
            path.unlink(missing_ok=True)
        with self._lock:
            self.copied_files += 1
            self.copied_bytes += file.bytes

    def _checked_pieces(self, file: FileEntry) -> Iterator[bytes]:
        """Yield the bytes of a source file; raise after the last one if the digest differs."""
        digest, num_bytes = xxhash.xxh3_128(), 0
        try:
            for piece in self._pieces(self.origin, file):
                digest.update(piece)
                num_bytes += len(piece)
                yield piece
        except FileNotFoundError as error:
            raise damaged(self.origin, file.name, "it is missing") from error
        if num_bytes != file.bytes:
            raise damaged(self.origin, file.name, f"its size is not {file.bytes} bytes")
        if digest.hexdigest() != file.xxh3_128:
            why = "its xxh3 digest differs from the one in the manifest"
            raise damaged(self.origin, file.name, why)

    def _is_intact(self, file: FileEntry) -> bool:
        digest = xxhash.xxh3_128()
        for piece in self._pieces(self.target, file):
            digest.update(piece)
        return digest.hexdigest() == file.xxh3_128

    def _pieces(self, end: CopyEnd, file: FileEntry) -> Iterator[bytes]:
        for piece in end.pieces(file.name, file.bytes, self._check):
            with self._lock:
                self._done_bytes += len(piece)
            yield piece

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError

    def _require_arrived(self, folders: Sequence[str], files: Sequence[FileEntry]) -> None:
        sizes = self.target.sizes(folders)
        for file in files:
            size = sizes.get(file.name, self.target.store.size(file.name))
            if size != file.bytes:
                raise StorageError(
                    "a copied file is missing at the destination",
                    where=f"{self.target.location}/{file.name}",
                    why=f"it should have {file.bytes} bytes; found {size}",
                    hint=AGAIN,
                )


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def require_sizes(end: CopyEnd, files: Sequence[FileEntry]) -> None:
    """Raise a VerificationError if a file is missing or has another size."""
    sizes = end.sizes(sorted({_folder_of(file.name) for file in files})) if end.can_list else {}
    for file in files:
        size = sizes.get(file.name, end.store.size(file.name))
        if size is None:
            raise damaged(end, file.name, "it is missing")
        if size != file.bytes:
            why = f"it should have {file.bytes} bytes, and has {size}"
            raise damaged(end, file.name, why)

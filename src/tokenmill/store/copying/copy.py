"""Copy a dataset file by file, with verified digests. A stopped copy can be resumed.

    copy.json       first, created once: names the manifest that is being copied
    tokens/ ...     each file whole or absent, after its digest was compared with the manifest
    plans/NAME/     arrays, then plan.json
    run.json        checked with its own digest
    manifest.json   last, created once: the destination is now a dataset, and copy.json is removed

If a file exists with the right size, an earlier run copied it: only whole files get their name.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec
import xxhash

from tokenmill.core.errors import OutputConflictError, UserError, VerificationError
from tokenmill.core.records import Advance
from tokenmill.store.canonical import canonical_json
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.copying.ends import End, folders_of, open_end
from tokenmill.store.copying.view_copy import write_out
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import require_digest
from tokenmill.store.files import storage_errors, temporary_folder
from tokenmill.store.manifest import MANIFEST_NAME, RUN_NAME, FileEntry
from tokenmill.store.manifest_checks import check_file_names
from tokenmill.store.ownership import sweep_temporaries
from tokenmill.store.view_manifest import VIEW_NAME

COPY_NAME = "copy.json"
FILES_AT_ONCE = 8
PROGRESS_SECONDS = 0.2
AGAIN = "run the same command again; it copies the missing files"


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a copy."""

    dataset_id: str
    files: int
    """Number of files of the dataset and its plans, without the JSON files that describe them."""
    bytes: int
    copied_files: int
    """Number of files that the destination did not have before."""
    copied_bytes: int
    plans: int
    left_plans: int = 0
    """Plans of a view, which are not copied: documents have other numbers in the copy."""


def copy(
    dataset: Dataset | str | Path,
    destination: str | Path,
    *,
    verify: bool = False,
    files_at_once: int = FILES_AT_ONCE,
    advance: Advance = lambda stage, done, total: None,
) -> CopyReport:
    """Copy a dataset and its plans between folders and buckets.

    The documents of a view are written to a folder as a dataset of its own, without its plans.

    Every file is compared with its digest while it is read. If a copy is interrupted, the same
    call copies the missing files.

    Args:
        dataset: a dataset, its folder, or its name in a bucket.
        destination: a folder, or a prefix in a bucket.
        verify: also read the destination back, and copy damaged files again.
        files_at_once: number of files to copy at a time.
        advance: called with a stage, the amount done and the total, to show progress.

    Raises:
        UserError: the dataset does not exist, or a location cannot be used.
        OutputConflictError: the destination has other content.
        VerificationError: a file of the source or a copied file is damaged.
        StorageError: a location fails; the same call resumes.
    """
    source = dataset.location if isinstance(dataset, Dataset) else dataset
    origin, target = open_end(source, "a dataset"), open_end(destination, "the destination")
    if not target.can_list:
        why = "tokenmill can only read from web servers"
        raise UserError("cannot copy to this location", where=target.location, why=why)
    _refuse_nested(origin, target)
    if origin.folder is not None and (origin.folder / VIEW_NAME).is_file():
        return _copy_view(Dataset(origin.folder), target, verify=verify, advance=advance)
    data, manifest = origin.read_manifest()
    plans = [origin.read_plan(name, manifest.dataset_id) for name in origin.plans()]
    run = origin.read_run()
    check_file_names(origin.location, manifest.files)
    _claim(target, data, manifest.dataset_id)
    fresh: set[str] = set()
    for plan in plans:
        held = target.store.read(plan.path)
        if held is None:  # another plan may have left arrays
            fresh.update(file.name for file in plan.files)
        elif held != plan.data:
            raise _conflict(target, f"{plan.path} belongs to a different plan")
    transfer = Transfer(origin, target, verify=verify, files_at_once=files_at_once, advance=advance)
    files = [*manifest.files, *(file for plan in plans for file in plan.files)]
    transfer.run(files, fresh)
    for plan in plans:
        _create(target, plan.path, plan.data)
    if target.store.read(RUN_NAME) is None:
        target.store.create(RUN_NAME, run)
    _create(target, MANIFEST_NAME, data)
    target.store.remove([COPY_NAME])
    if (root := target.path("")) is not None:
        sweep_temporaries({root, *((root / file.name).parent for file in files)})
    return CopyReport(
        dataset_id=manifest.dataset_id,
        files=len(files),
        bytes=sum(file.bytes for file in files),
        copied_files=transfer.copied_files,
        copied_bytes=transfer.copied_bytes,
        plans=len(plans),
    )


def _copy_view(view: Dataset, target: End, *, verify: bool, advance: Advance) -> CopyReport:
    """Write the documents of a view to a folder."""
    if target.folder is None:
        why = "a copy of a view is written as a whole, before it gets its name"
        hint = f"copy it to a folder first, then that one: tokenmill cp FOLDER {target.location}"
        what = "a view can only be copied to a folder"
        raise UserError(what, where=target.location, why=why, hint=hint)
    for root in view.roots:
        _refuse_nested(open_end(root.folder, "a dataset"), target)
    manifest, was_there = write_out(view, target.folder, advance)
    for file in manifest.files if verify else ():
        require_digest(target.folder / file.name, file.xxh3_128)
    size = sum(file.bytes for file in manifest.files)
    return CopyReport(
        dataset_id=manifest.dataset_id,
        files=len(manifest.files),
        bytes=size,
        copied_files=0 if was_there else len(manifest.files),
        copied_bytes=0 if was_there else size,
        plans=0,
        left_plans=len(view.plans),
    )


def _refuse_nested(origin: End, target: End) -> None:
    """Raise a UserError if the locations are equal, or one contains the other."""
    ends = [end.location for end in (origin, target)]
    places = [f"{end if is_remote(end) else Path(end).resolve()}/" for end in ends]
    if places[0].startswith(places[1]) or places[1].startswith(places[0]):
        raise UserError(
            "a dataset cannot be copied into itself",
            where=target.location,
            why=f"the dataset is {origin.location}",
            hint="choose a destination outside the dataset that does not contain it",
        )


def _claim(target: End, manifest: bytes, dataset_id: str) -> None:
    """Record which dataset is being copied to the target, unless it is already there.

    Raises:
        OutputConflictError: the target has other content.
    """
    held = target.store.read(MANIFEST_NAME)
    if held is not None:
        if held != manifest:
            raise _conflict(target, "it contains a different dataset")
        return
    note = canonical_json(
        {
            "format": "tokenmill-copy",
            "format_version": 1,
            "dataset_id": dataset_id,
            "manifest_xxh3_128": xxhash.xxh3_128_hexdigest(manifest),
        }
    )
    if target.store.read(COPY_NAME) is None and not target.is_empty():
        raise _conflict(target, "it is not empty, and it is not an unfinished copy")
    if target.store.create(COPY_NAME, note) != note:
        raise _conflict(target, "it contains an unfinished copy of a different dataset")


def _conflict(target: End, why: str) -> OutputConflictError:
    hint = "choose another destination, or delete its content"
    what = "the destination is not empty"
    return OutputConflictError(what, where=target.location, why=why, hint=hint)


def _create(target: End, name: str, data: bytes) -> None:
    if target.store.create(name, data) != data:
        raise _conflict(target, f"another program created {name}")


class _StoppedError(Exception):
    """Stops the transfer of a file because another file failed or the user stopped the copy."""


@dataclass(slots=True)
class Transfer:
    """Copies several files at a time."""

    origin: End
    target: End
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
        folders = folders_of(files)
        if self.origin.can_list:
            self.origin.require_sizes(files)
        there = self.target.sizes(folders)
        missing = [
            file for file in files if file.name in fresh or there.get(file.name) != file.bytes
        ]
        total = sum(file.bytes for file in (*missing, *(files if self.verify else ())))
        needed = {file.name for file in missing}
        with self._scratch() as scratch:

            def carry(file: FileEntry) -> None:
                """Copy a file if it is needed, or if `verify` finds that its copy is damaged."""
                if file.name not in needed and self._is_intact(file):
                    return
                if file.name in there:
                    self.target.store.remove([file.name])
                self._copy(file, Path(scratch))

            self._each(files if self.verify else missing, carry, total)
        self.target.require_sizes(files)  # the store may have lost one

    def _scratch(self) -> AbstractContextManager[str | Path]:
        """Provide a temporary folder for files to be moved to the target."""
        if self.target.folder is None:
            return tempfile.TemporaryDirectory(prefix="tokenmill-")
        return temporary_folder(self.target.folder / "copy")

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

    def _copy(self, file: FileEntry, scratch: Path) -> None:
        path = self.origin.path(file.name)
        if path is not None and self.target.folder is None:  # upload it directly
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
        if self.verify and not self._is_intact(file):
            raise VerificationError(
                "a file was damaged during the copy",
                where=f"{self.target.location}/{file.name}",
                why="the xxh3 digest of the copy differs from that of the written data",
                hint=AGAIN,
            )
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
            raise self.origin.damaged(file.name, "it is missing") from error
        if num_bytes != file.bytes:
            raise self.origin.damaged(file.name, f"its size is not {file.bytes} bytes")
        if digest.hexdigest() != file.xxh3_128:
            why = "its xxh3 digest differs from the one in the manifest"
            raise self.origin.damaged(file.name, why)

    def _is_intact(self, file: FileEntry) -> bool:
        digest = xxhash.xxh3_128()
        for piece in self._pieces(self.target, file):
            digest.update(piece)
        return digest.hexdigest() == file.xxh3_128

    def _pieces(self, end: End, file: FileEntry) -> Iterator[bytes]:
        for piece in end.pieces(file.name, file.bytes, self._check):
            with self._lock:
                self._done_bytes += len(piece)
            yield piece

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError

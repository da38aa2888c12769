"""The folders of a run, and its lock."""

from __future__ import annotations

import contextlib
import fnmatch
import logging
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from tokenmill.errors import OutputConflictError
from tokenmill.paths import local_path, refuse_non_utf8
from tokenmill.store.files import (
    lock_if_free,
    remove_folder,
    storage_errors,
)
from tokenmill.store.manifest import MANIFEST_NAME, RUN_NAME

LOGGER = logging.getLogger(__name__)

HALF_WRITTEN = re.compile(r"(manifest|counts|run)\.json\.\d+\.tmp")
"""What a kill may leave beside the files that it was meant to become."""


@dataclass(frozen=True, slots=True)
class OutputKind:
    """What a run makes of its output folder, and what such a folder may hold."""

    manifest: str
    """The file that is written last."""
    start: bytes
    """How that file begins."""
    folders: tuple[str, ...]
    files: str
    """A glob of the other files that it is made of; "" if they are all in folders."""
    noun: str
    """For errors."""
    the: str
    other: str


DATASET_OUTPUT = OutputKind(
    manifest=MANIFEST_NAME,
    start=b'{\n  "format": "tokenmill",\n',
    folders=("tokens", "documents", "rejected", "tokenizer", "plans", "work"),
    files="",
    noun="dataset",
    the="the dataset",
    other="another dataset",
)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a run keeps what is not yet a dataset, or whatever it makes."""

    out: Path
    kind: OutputKind = DATASET_OUTPUT

    @property
    def work(self) -> Path:
        """Everything that goes away when the dataset is complete."""
        return self.out / "work"

    @property
    def lock(self) -> Path:
        """Held while a build lives."""
        return self.work / "lock"

    @property
    def attempts(self) -> Path:
        """Shards while they are written, and spool files."""
        return self.work / "attempts"

    @property
    def shards(self) -> Path:
        """Finished shards, under the names of their units."""
        return self.work / "shards"

    @property
    def receipts(self) -> Path:
        """One receipt per finished unit."""
        return self.work / "receipts"

    @property
    def state(self) -> Path:
        """What the build was started with."""
        return self.work / "build.json"

    @property
    def is_complete(self) -> bool:
        """Whether what the run makes exists."""
        return (self.out / self.kind.manifest).is_file()

    def create(self) -> None:
        """Make the folders, and clear what an earlier attempt left half done."""
        with storage_errors("create the output folder", self.out):
            shutil.rmtree(self.attempts, ignore_errors=True)
            for folder in (self.attempts, self.shards, self.receipts):
                folder.mkdir(parents=True, exist_ok=True)
            for path in self.out.iterdir():
                if HALF_WRITTEN.fullmatch(path.name):
                    path.unlink()
            for folder in (self.out / "tokenizer", self.work):
                for path in folder.glob("*.tmp"):
                    path.unlink()

    def make_room(self, *, overwrite: bool) -> None:
        """Remove what may not be there when a run begins."""
        if overwrite or not (self.is_complete or self.state.is_file()):
            self.remove_output()  # or what an interrupted --overwrite has left

    def remove_output(self) -> None:
        """Remove a dataset or a build, or whatever the run makes; the manifest goes first."""
        with storage_errors(f"remove the old {self.kind.noun}", self.out):
            for name in (self.kind.manifest, RUN_NAME):
                (self.out / name).unlink(missing_ok=True)
            for path in self.out.glob(self.kind.files) if self.kind.files else ():
                path.unlink()
            for name in self.kind.folders:
                if name != "work":
                    remove_folder(self.out / name)
            for path in (self.attempts, self.shards, self.receipts):
                remove_folder(path)
            for path in self.work.glob("*.json"):
                path.unlink()


def check_output(workspace: Workspace) -> None:
    """Raise an OutputConflictError where the folder holds anything but a dataset or a build."""
    out, noun = workspace.out, workspace.kind.noun
    if out.is_symlink() and not out.exists():
        raise OutputConflictError("the output is a broken link", where=str(out))
    if out.exists() and not out.is_dir():
        raise OutputConflictError("the output is a file", where=str(out))
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if names and not (is_finished(workspace) or _is_begun(workspace, names)):
        plural = noun if noun.endswith("s") else f"{noun}s"
        raise OutputConflictError(
            f"the output folder is not empty and holds no {noun}",
            where=str(out),
            why=f"it holds {sorted(names)[0]!r}",
            hint=f"choose another folder; --overwrite replaces {plural} only",
        )


def open_workspace(out: str | Path, kind: OutputKind = DATASET_OUTPUT) -> Workspace:
    """The folder for what a run makes.

    Raises:
        UserError: its name cannot be used.
        OutputConflictError: it holds something else.
    """
    path = local_path(out, "the output folder")
    refuse_non_utf8(Path(os.path.realpath(path)), "the output folder")
    workspace = Workspace(path, kind)
    check_output(workspace)
    return workspace


def is_finished(workspace: Workspace) -> bool:
    """Whether a folder holds what its kind says, by the first bytes of the file that says it."""
    path, start = workspace.out / workspace.kind.manifest, workspace.kind.start
    with open(path if path.is_file() else os.devnull, "rb") as file:
        return file.read(len(start)) == start


def _is_begun(workspace: Workspace, names: set[str]) -> bool:
    """A run that has not finished holds nothing but what its kind of output may hold.

    Its first step makes the empty folder `work`, the second the lock in it.
    """
    work, kind = workspace.work, workspace.kind
    if names == {"work"} and work.is_dir() and not any(work.iterdir()):
        return True
    strangers = names - {*kind.folders, RUN_NAME}
    return workspace.lock.is_file() and all(
        HALF_WRITTEN.fullmatch(name) or fnmatch.fnmatchcase(name, kind.files) for name in strangers
    )


@contextmanager
def locked(workspace: Workspace) -> Iterator[None]:
    """Hold the build's lock; it ends with the process, however that ends.

    Raises:
        OutputConflictError: another build holds it.
        StorageError: the folder cannot be made, or cannot be locked.
    """
    with storage_errors("create the output folder", workspace.out):
        workspace.work.mkdir(parents=True, exist_ok=True)
        file = open(workspace.lock, "a+b", buffering=0)  # noqa: SIM115 - held until the end
    try:
        with storage_errors("lock the output folder", workspace.lock):
            _take_lock(file, workspace)
        yield
        if workspace.is_complete:
            try:
                workspace.lock.unlink()
                workspace.work.rmdir()
            except OSError as error:
                text = "%s is complete, but %s could not be removed: %s"
                LOGGER.warning(text, workspace.kind.the, workspace.work, error.strerror)
    finally:
        with contextlib.suppress(OSError):  # it is closed even so
            file.close()


def _take_lock(file: FileIO, workspace: Workspace) -> None:
    try:
        free = lock_if_free(file.fileno())
        current = free and os.path.samestat(os.fstat(file.fileno()), workspace.lock.stat())
    except FileNotFoundError:
        current = False  # just removed by a build that has finished
    if not current:
        file.seek(0)
        raise OutputConflictError(
            "another build is writing this folder",
            where=str(workspace.out),
            why=(file.read(200) or b"").decode(errors="replace") or "its lock is held",
            hint="wait for it, stop it, or choose another folder",
        )
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())

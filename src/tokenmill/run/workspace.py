"""The output of a run while it is written, and its lock.

The lock is held by one build alone or by several agents together. It keeps two builds of one
machine apart, and keeps `--overwrite` from removing what another build writes. The files of a build
are safe without it: see `store/objects/object_store.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import Literal

from tokenmill.core.errors import OutputConflictError, StorageError
from tokenmill.core.paths import output_path, refuse_non_utf8
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.files import (
    REPLACED,
    remove_folder,
    restore,
    storage_errors,
    take_name,
    unfinished_beside,
)
from tokenmill.store.manifest import MANIFEST_NAME, RUN_NAME
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.object_store import ObjectStore
from tokenmill.store.objects.opening import open_store
from tokenmill.store.ownership import DATASET_FILES, refuse_strangers, sweep_temporaries

LOGGER = logging.getLogger(__name__)
POLL_SECONDS = 0.05
WAIT_SECONDS = 5.0
"""How long an agent waits for a build that holds the lock alone while it checks the output."""

How = Literal["alone", "together", "either"]
"""How a lock is held."""


@dataclass(frozen=True, slots=True)
class OutputKind:
    """A kind of output, and what its folder may hold."""

    manifest: str
    """The file that is written last."""
    start: bytes
    """The first bytes of that file."""
    folders: tuple[str, ...]
    files: re.Pattern[str]
    """The names of all files of an output, finished or not. No other file is ever deleted."""
    noun: str
    """The kind's name in errors."""
    other: str


DATASET_OUTPUT = OutputKind(
    manifest=MANIFEST_NAME,
    start=b'{\n  "format": "tokenmill",\n',
    folders=("tokens", "documents", "rejected", "tokenizer", "plans", "work"),
    files=DATASET_FILES,
    noun="dataset",
    other="another dataset",
)


JOB_NAME = "work/job.json"
"""The stored start of a run. Once it exists, the run can be resumed."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The output of a run, with the files that it needs until it is finished."""

    folder: Path
    """The output folder. If the output is a bucket, a local folder for this agent's files."""
    kind: OutputKind = DATASET_OUTPUT
    bucket: ObjectStore | None = None
    """The output if it is a bucket."""
    life: str = field(default_factory=lambda: secrets.token_hex(4))
    """A unique name for this agent's files."""
    replaces: Path | None = None
    """The output that this one replaces once it is complete."""

    @property
    def store(self) -> ObjectStore:
        """The output as an object store."""
        return self.bucket or FolderStore(self.folder)

    @property
    def location(self) -> str:
        """The output's name for messages."""
        return self.store.location

    @property
    def work(self) -> Path:
        """The folder that is removed when the dataset is complete."""
        return self.folder / "work"

    @property
    def lock(self) -> Path:
        """The file that a running build holds a lock on."""
        return self.work / "lock"

    @property
    def scratch(self) -> Path:
        """The folder of this agent's spool files and unfinished shards."""
        return self.work / "attempts" / self.life

    def is_complete(self) -> bool:
        """Whether the output is complete."""
        return self.store.size(self.kind.manifest) is not None

    def is_begun(self) -> bool:
        """Whether there is a run to resume."""
        return self.store.size(JOB_NAME) is not None

    def create(self, *, alone: bool = True) -> None:
        """Create the folders, and remove unfinished files of earlier attempts.

        Unless the agent is `alone`, nothing is removed: the files may be another agent's.
        """
        with storage_errors("create the output folder", self.folder):
            if alone:
                shutil.rmtree(self.scratch.parent, ignore_errors=True)
                sweep_unfinished(self.folder)
            self.scratch.mkdir(parents=True, exist_ok=True)

    def beside(self) -> Workspace:
        """Return the workspace, beside this output, of a run that replaces it.

        Raises:
            OutputConflictError: the folder beside this output holds files of someone else.
        """
        place = unfinished_beside(Path(os.path.realpath(self.folder)))
        ours = re.compile(rf"(new|{REPLACED})/({self.kind.files.pattern})")
        refuse_strangers(place, ours.fullmatch)
        return replace(self, folder=place / "new", replaces=self.folder)

    def take_name(self) -> Workspace:
        """Exchange a complete output with the one that it replaces, and remove that.

        Returns the workspace of the finished output.

        Raises:
            OutputConflictError: the old output holds files of someone else.
        """
        if self.replaces is None:
            return self
        old = replace(self, folder=self.replaces, replaces=None)
        old.refuse_strangers()
        old.beside()  # refuses files of someone else
        with storage_errors(f"replace the old {self.kind.noun}", old.folder):
            take_name(self.folder, Path(os.path.realpath(old.folder)))
        try:
            remove_folder(self.folder.parent)
        except OSError as error:
            text = "the %s is complete, but the old one in %s could not be removed: %s"
            LOGGER.warning(text, self.kind.noun, self.folder.parent, error.strerror)
        return old

    def make_room(self, *, overwrite: bool) -> None:
        """Clear the output for a new run."""
        if overwrite or not (self.is_complete() or self.is_begun()):
            self.remove_output()  # or what an interrupted --overwrite has left

    def refuse_strangers(self) -> None:
        """Raise an OutputConflictError if the output holds files of someone else."""
        refuse_strangers(self.folder, self.kind.files.fullmatch)

    def remove_output(self) -> None:
        """Remove a finished or unfinished output.

        Removes the manifest first and the start record last.

        Raises:
            OutputConflictError: it holds files of someone else; nothing is removed.
        """
        self.refuse_strangers()
        with storage_errors(f"remove the old {self.kind.noun}", self.folder):
            for name in (self.kind.manifest, RUN_NAME):
                (self.folder / name).unlink(missing_ok=True)
            for path in self.folder.iterdir() if self.folder.is_dir() else ():
                if self.kind.files.fullmatch(path.name):
                    path.unlink()
            for name in (*WORK_FOLDERS, *self.kind.folders):
                if name != "work":
                    remove_folder(self.folder / name)
            for path in sorted(self.work.glob("*.json"), key=lambda path: path.name == "job.json"):
                path.unlink()


WORK_FOLDERS = tuple(
    f"work/{name}"
    for name in (
        *("attempts", "shards", "receipts", "streams", "claims"),
        *("agents", "damaged", "failed", "agreed"),
    )
)
"""The folders below `work/` that a run keeps until it is finished."""


def sweep_unfinished(folder: Path) -> None:
    """Remove temporary files that a killed process has left."""
    from tokenmill.store.layout import PART_FOLDERS  # with numpy, after the first worker started

    names = ("", "work", "tokenizer", *PART_FOLDERS.values(), *WORK_FOLDERS)
    sweep_temporaries(folder / name for name in names)


def check_output(workspace: Workspace) -> None:
    """Raise an OutputConflictError if the output holds anything but a dataset or a build."""
    out, noun = workspace.folder, workspace.kind.noun
    if workspace.bucket is not None:
        from tokenmill.store.cloud.client import Client  # imports what talks to servers

        names = Client(workspace.location).names()
    else:
        if out.is_symlink() and not out.exists():
            raise OutputConflictError("the output is a broken link", where=str(out))
        if out.exists() and not out.is_dir():
            raise OutputConflictError("the output is a file", where=str(out))
        _refuse_links(workspace)
        names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if names and not (is_finished(workspace) or _may_be_begun(workspace, names)):
        plural = noun if noun.endswith("s") else f"{noun}s"
        raise OutputConflictError(
            f"the output folder is not empty and holds no {noun}",
            where=workspace.location,
            why=f"it holds {sorted(names)[0]!r}",
            hint=f"choose another folder; --overwrite replaces {plural} only",
        )


def _refuse_links(workspace: Workspace) -> None:
    """Refuse folders that are links out of the output: a build would remove files there."""
    root = Path(os.path.realpath(workspace.folder))
    for name in workspace.kind.folders:
        real = Path(os.path.realpath(root / name))
        if not real.is_relative_to(root):
            raise OutputConflictError(
                f"the folder {name!r} of the output is a link to a place outside the output",
                where=str(workspace.folder / name),
                why=f"it points to {real}, where a build could replace files",
                hint="remove the link; the whole output folder may be a link",
            )


@contextmanager
def open_workspace(
    out: str | Path, kind: OutputKind = DATASET_OUTPUT, *, scratch: str | None = None
) -> Iterator[Workspace]:
    """Open the output of a run.

    `scratch` is a folder for the files of an agent that writes to a bucket; by default, the
    system's temporary folder.

    Raises:
        UserError: the name of the output cannot be used.
        OutputConflictError: the output holds something else.
    """
    with contextlib.ExitStack() as stack:
        if is_remote(str(out)):
            bucket = open_store(str(out))
            with storage_errors("make a scratch folder", Path(scratch or tempfile.gettempdir())):
                folder = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="tokenmill-", dir=scratch)
                )
            workspace = Workspace(Path(folder), kind, bucket)
        else:
            path = output_path(out, "the output folder")
            real = Path(os.path.realpath(path))
            refuse_non_utf8(real, "the output folder")
            if is_finished(Workspace(unfinished_beside(real) / REPLACED, kind)):
                with storage_errors("restore the old output", path):
                    restore(real)
            workspace = Workspace(path, kind)
        check_output(workspace)
        yield workspace


def is_finished(workspace: Workspace) -> bool:
    """Whether an output is complete, judged by the first bytes of its manifest."""
    name, start = workspace.kind.manifest, workspace.kind.start
    if workspace.bucket is not None:
        return workspace.bucket.size(name) is not None
    path = workspace.folder / name
    with open(path if path.is_file() else os.devnull, "rb") as file:
        return file.read(len(start)) == start


def _may_be_begun(workspace: Workspace, names: set[str]) -> bool:
    """Whether the output may hold an unfinished run: only files that its kind of output allows.

    A run creates the empty folder `work` first, and the lock in it second.
    """
    work, kind = workspace.work, workspace.kind
    if workspace.bucket is None and names == {"work"} and work.is_dir() and not any(work.iterdir()):
        return True
    others = names - {*kind.folders, RUN_NAME}
    is_locked = workspace.bucket is not None or workspace.lock.is_file()
    return is_locked and all(map(kind.files.fullmatch, others))


@contextmanager
def locked(workspace: Workspace, how: How = "alone") -> Iterator[bool]:
    """Hold the lock of the output; yields whether this process is the only holder.

    Processes that hold it together share it. The lock ends with the process, even if that is
    killed. A bucket has no lock.

    Raises:
        OutputConflictError: another build holds the lock.
        StorageError: the folder cannot be created or locked.
    """
    if workspace.bucket is not None:
        yield False
        return
    file, alone = _take_lock(workspace, how)
    try:
        yield alone
    finally:
        with contextlib.suppress(StorageError):
            if workspace.is_complete() and (alone or _is_last(file)):
                _remove_lock(workspace)
        with contextlib.suppress(OSError):  # the file is closed nevertheless
            file.close()


def _is_last(file: FileIO) -> bool:
    """Whether no other process holds the lock. Other holders may still be writing."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_lock(workspace: Workspace) -> None:
    try:
        workspace.lock.unlink(missing_ok=True)
        workspace.work.rmdir()
    except FileNotFoundError:
        pass  # another agent was quicker
    except OSError as error:
        text = "the %s is complete, but %s could not be removed: %s"
        LOGGER.warning(text, workspace.kind.noun, workspace.work, error.strerror)


def _take_lock(workspace: Workspace, how: How) -> tuple[FileIO, bool]:
    """Return the locked file, and whether this process is the only holder."""
    give_up_at = time.monotonic() + (WAIT_SECONDS if how == "together" else 0)
    while True:
        with storage_errors("create the output folder", workspace.folder):
            workspace.work.mkdir(parents=True, exist_ok=True)
            file = open(workspace.lock, "a+b", buffering=0)  # noqa: SIM115 - held until the end
        try:
            with storage_errors("lock the output folder", workspace.lock):
                found = "taken" if how == "together" else _try_lock(file, workspace, fcntl.LOCK_EX)
                if found == "ours":
                    file.truncate(0)
                    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
                    return file, True
                if found == "taken" and how != "alone":
                    found = _try_lock(file, workspace, fcntl.LOCK_SH)
                    if found == "ours":
                        return file, False
            if found == "taken" and time.monotonic() >= give_up_at:
                raise _taken(file, workspace)
        except BaseException:
            file.close()
            raise
        file.close()
        time.sleep(POLL_SECONDS)


def _try_lock(file: FileIO, workspace: Workspace, kind: int) -> Literal["ours", "taken", "gone"]:
    try:
        fcntl.flock(file.fileno(), kind | fcntl.LOCK_NB)
        current = os.path.samestat(os.fstat(file.fileno()), workspace.lock.stat())
    except BlockingIOError:
        return "taken"
    except FileNotFoundError:
        current = False
    return "ours" if current else "gone"  # removed by a build that has just finished


def _taken(file: FileIO, workspace: Workspace) -> OutputConflictError:
    file.seek(0)
    return OutputConflictError(
        "another build is writing this folder",
        where=str(workspace.folder),
        why=(file.read(200) or b"").decode(errors="replace") or "its lock is held",
        hint="wait for it, stop it, or choose another folder",
    )

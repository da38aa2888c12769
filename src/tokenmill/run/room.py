"""Where a run writes, and the lock of that place.

    out/                      the output, or the old one until the new one is complete
    .out.unfinished/new/      the new one, which keeps `work/job.json` until it has the name
    .out.unfinished/replaced/ the old one, between two renames if names cannot be exchanged

A kill just after the exchange leaves the old output in `new/`, without `work/job.json`.

The lock is held by one build alone or by several agents together. It keeps two builds of one
machine apart, and keeps `--overwrite` from removing what another build writes. The files of a build
are safe without it: see `store/objects/object_store.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Literal, TypeVar

from tokenmill.core.errors import (
    InputChangedError,
    OutputConflictError,
    StorageError,
    VerificationError,
)
from tokenmill.core.options import Overwrite
from tokenmill.run.agreement import OnCompare, agree_on_start
from tokenmill.run.task import Task
from tokenmill.run.workspace import JOB_NAME, Workspace
from tokenmill.store.files import refuse_fixed, remove_folder, storage_errors

R = TypeVar("R")

LOGGER = logging.getLogger(__name__)

POLL_SECONDS = 0.05
WAIT_SECONDS = 5.0
"""How long an agent waits for a build that holds the lock alone while it checks the output."""


How = Literal["alone", "together", "either"]


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
        text = "%s is complete, but %s could not be removed: %s"
        LOGGER.warning(text, workspace.kind.the, workspace.work, error.strerror)


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


def found_before(workspace: Workspace, task: Task[R], how: How, on_compare: OnCompare) -> R | None:
    """Return the result of a finished output, or None if there is work left.

    Raises:
        InputChangedError: the output holds an unfinished run with other inputs or options.
    """
    if not (workspace.is_complete() or workspace.is_begun()):
        return None
    with locked(workspace, how):
        if workspace.is_complete():
            return task.found(workspace, on_compare)
        agree_on_start(workspace, task, on_compare)
    return None


@contextmanager
def room_for(
    task: Task[Any] | None,
    workspace: Workspace,
    overwrite: Overwrite,
    how: How = "alone",
) -> Iterator[tuple[Workspace, bool]]:
    """Lock the output and make room for a run that begins with `task`; None cannot be resumed.

    Yields where the run writes, and whether no other agent can be writing there. A complete output
    is replaced by `Workspace.take_name`, unless it is to be removed first.

    Raises:
        OutputConflictError: another run holds the lock, or the output holds files of someone else.
    """
    beside = workspace.beside() if overwrite else None
    if beside and overwrite != "first" and workspace.is_complete():
        with _room_beside(task, workspace, beside):
            yield beside, True
        return
    with locked(workspace, how) as alone:
        if beside and beside.folder.parent.is_dir():
            with locked(beside), storage_errors("remove an unfinished output", beside.folder):
                remove_folder(beside.folder.parent)
        if alone:
            workspace.make_room(overwrite=bool(overwrite))
        yield workspace, alone


@contextmanager
def _room_beside(task: Task[Any] | None, old: Workspace, new: Workspace) -> Iterator[None]:
    """Lock a complete output and the folder beside it. A run that has not begun leaves nothing."""
    hint = "run it from another folder, or remove the old output with --overwrite=first"
    refuse_fixed(Path(os.path.realpath(old.folder)), hint)
    with locked(new):
        try:
            with locked(old):
                old.refuse_strangers()
                old.store.remove([JOB_NAME])  # after the exchange, only the new output may have it
                if not _can_resume(new, task):
                    new.remove_output()
                yield
        finally:
            with contextlib.suppress(OSError):
                if new.folder.is_dir() and not new.is_begun():
                    remove_folder(new.folder.parent)


def _can_resume(new: Workspace, task: Task[Any] | None) -> bool:
    if task is not None and new.is_begun():
        with contextlib.suppress(InputChangedError, OutputConflictError, VerificationError):
            agree_on_start(new, task, lambda source: None)
            return True
    return False

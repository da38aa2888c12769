"""The lock of an output folder, held by one build alone or by several agents together.

It keeps two builds of one machine apart, and keeps `--overwrite` from removing what another build
writes. The files of a build are safe without it: see `store/objects/object_store.py`.
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
from typing import Literal

from tokenmill.core.errors import OutputConflictError, StorageError
from tokenmill.run.commit.workspace import Workspace
from tokenmill.store.files import storage_errors

LOGGER = logging.getLogger(__name__)

POLL_SECONDS = 0.05
PATIENCE_SECONDS = 5.0
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
    patient_until = time.monotonic() + (PATIENCE_SECONDS if how == "together" else 0)
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
            if found == "taken" and time.monotonic() >= patient_until:
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

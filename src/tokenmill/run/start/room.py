"""Where a run writes: its output, or a folder beside an old output that it replaces.

    out/                      the old output, which stays until the new one is complete
    .out.unfinished/new/      the new one, which keeps `work/job.json` until it has the name
    .out.unfinished/replaced/ the old one, between two renames if names cannot be exchanged

A kill just after the exchange leaves the old output in `new/`, without `work/job.json`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenmill.core.errors import InputChangedError, OutputConflictError, VerificationError
from tokenmill.run.commit.lock import How, locked
from tokenmill.run.commit.workspace import JOB_NAME, Overwrite, Workspace
from tokenmill.run.start.agreement import Start, agree_on_start
from tokenmill.store.files import refuse_fixed, remove_folder, storage_errors


@contextmanager
def room_for(
    start: Callable[[], Start] | None,
    workspace: Workspace,
    overwrite: Overwrite,
    how: How = "alone",
) -> Iterator[tuple[Workspace, bool]]:
    """Lock the output and make room for a run that begins with `start`; None cannot be resumed.

    Yields where the run writes, and whether no other agent can be writing there. A complete output
    is replaced by `Workspace.take_name`, unless it is to be removed first.

    Raises:
        OutputConflictError: another run holds the lock, or the output holds files of someone else.
    """
    beside = workspace.beside() if overwrite else None
    if beside and overwrite != "first" and workspace.is_complete():
        with _room_beside(start, workspace, beside):
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
def _room_beside(
    start: Callable[[], Start] | None, old: Workspace, new: Workspace
) -> Iterator[None]:
    """Lock a complete output and the folder beside it. A run that has not begun leaves nothing."""
    hint = "run it from another folder, or remove the old output with --overwrite=first"
    refuse_fixed(Path(os.path.realpath(old.folder)), hint)
    with locked(new):
        try:
            with locked(old):
                old.refuse_strangers()
                old.store.remove([JOB_NAME])  # after the exchange, only the new output may have it
                if not _can_resume(new, start):
                    new.remove_output()
                yield
        finally:
            with contextlib.suppress(OSError):
                if new.folder.is_dir() and not new.is_begun():
                    remove_folder(new.folder.parent)


def _can_resume(new: Workspace, start: Callable[[], Start] | None) -> bool:
    if start is not None and new.is_begun():
        with contextlib.suppress(InputChangedError, OutputConflictError, VerificationError):
            agree_on_start(new, start())
            return True
    return False

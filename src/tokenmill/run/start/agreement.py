"""Check whether this run may resume or reuse what the output holds."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import xxhash

from tokenmill.core.errors import InputChangedError, OutputConflictError, VerificationError
from tokenmill.read.sources import pinned_names
from tokenmill.run.commit.identity import (
    AnyIdentity,
    JobRecord,
    identity_differences,
    shown,
    version_differences,
)
from tokenmill.run.commit.ledger import Ledger
from tokenmill.run.commit.lock import How, locked
from tokenmill.run.commit.receipts import read_receipts
from tokenmill.run.commit.workspace import JOB_NAME, Workspace
from tokenmill.run.start.contents import LEFT_OUT, STOPPED_AT_LIMIT, Contents
from tokenmill.store.canonical import canonical_json, sealed, unseal
from tokenmill.store.manifest import RUN_NAME, Run, SourceEntry
from tokenmill.store.objects.object_store import open_record

R = TypeVar("R")

OLD_STATE_NAME = "work/build.json"
"""The start record of a run of an older version."""
AGREED = "work/agreed"
"""Records of inputs with new modification times and unchanged contents."""
JOB_VARIABLE = "TOKENMILL_JOB"
"""The environment variable with the job that an agent was started for. Launchers set it."""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a run, and what is needed to compare it with a stored one."""

    noun: str
    """The name of the run in errors, such as "build"."""
    identity: AnyIdentity
    inputs: Sequence[str]
    """As the user named them."""
    deciding: Callable[[str], frozenset[str]]
    """Returns the libraries that affect the output of an engine, given its name."""
    contents: Contents

    def versions_for(self, engine: str) -> dict[str, str]:
        """Return the installed versions of the libraries that affect the output of an engine."""
        names = self.deciding(engine)
        return {name: known for name, known in self.identity.versions.items() if name in names}


def found_before(
    workspace: Workspace, start: Callable[[], Start], complete: Callable[[Start], R], how: How
) -> R | None:
    """Return the result of `complete` for a finished output, or None if there is work left.

    Raises:
        InputChangedError: the output holds an unfinished run with other inputs or options.
    """
    _refuse_old_build(workspace)
    if not (workspace.is_complete() or workspace.is_begun()):
        return None
    with locked(workspace, how):
        if workspace.is_complete():
            return complete(start())
        agree_on_start(workspace, start())
    return None


def _refuse_old_build(workspace: Workspace) -> None:
    if workspace.store.size(OLD_STATE_NAME) is None:
        return
    raise OutputConflictError(
        f"the output folder holds an unfinished {workspace.kind.noun} of an older version",
        where=workspace.location,
        why="this version names shards differently",
        hint="finish it with the version that started it, or start again with --overwrite",
    )


def agree_on_start(workspace: Workspace, start: Start) -> str:
    """Store the start of a run, or compare it with the stored one. Returns the job's name.

    Raises:
        InputChangedError: they differ. The message lists the differences.
        OutputConflictError: this is not the run that the agent was started for.
        VerificationError: the stored start is damaged.
    """
    store, wanted = workspace.store, os.environ.get(JOB_VARIABLE, "")
    data = store.read(JOB_NAME)
    if data is None and not wanted:
        identity = msgspec.Raw(msgspec.json.encode(start.identity))
        record = sealed(JobRecord(job=secrets.token_hex(8), identity=identity))
        data = store.create(JOB_NAME, canonical_json(record))
    stored = None if data is None else read_job(data, f"{store.location}/{JOB_NAME}")
    if wanted and (stored is None or stored.job != wanted):
        raise OutputConflictError(
            "the output is not the one that this agent was started for",
            where=store.location,
            why=f"{JOB_VARIABLE} is {wanted}; the output holds "
            + (f"the job {stored.job}" if stored else "no job"),
            hint="the output must be a bucket, or a folder that all machines share",
        )
    assert stored is not None
    lines = _differences(workspace, start, msgspec.json.decode(stored.identity))
    if lines:
        old = msgspec.json.decode(stored.identity, type=_Commits).commits
        raise InputChangedError(
            f"cannot resume the {start.noun}: its inputs, options or libraries have changed",
            where=store.location,
            why=shown(lines),
            hint=_moved_hint(old, start.identity, start.inputs)
            + "undo the change, choose another --out, or start again with --overwrite",
        )
    return stored.job


class _Commits(msgspec.Struct):
    commits: dict[str, str] = {}


def read_job(data: bytes, where: str) -> JobRecord:
    """Return the stored start of a run; raise a VerificationError if it is damaged."""
    try:
        return unseal(data, JobRecord, where)
    except VerificationError as error:
        error.hint = "start again with --overwrite, or choose another --out"
        raise


def _differences(workspace: Workspace, start: Start, stored: dict[str, Any]) -> list[str]:
    """Return how a stored start differs from this one, with the libraries used so far."""
    store, identity = workspace.store, start.identity
    known = f"{AGREED}/{xxhash.xxh3_128_hexdigest(msgspec.json.encode(identity.inputs))}.json"
    state = Ledger(store, ())
    compared: list[int] = []

    def change_of(index: int) -> str:
        if index in state.quarantined:
            return LEFT_OUT
        if store.size(known) is not None:
            return ""
        compared.append(index)
        state.receipts = state.receipts or read_receipts(store)
        return start.contents.change_since_receipts(index, state.receipts)

    lines = identity_differences(stored, identity, change_of)
    if state.engine:  # before the first receipt, no library has affected the output
        old, names = stored["versions"], start.deciding(state.engine)
        changed = version_differences(old, identity.versions, names)
        lines += [f"{name}: was version {then}, is {now}" for name, then, now in changed]
    if compared and not lines:  # only times differ: remember it, as comparing reads the inputs
        store.create(known, b"{}\n")
    return lines


def agree_on_finished(
    workspace: Workspace, start: Start, sources: Sequence[SourceEntry], *, limited: bool
) -> tuple[Run, list[str]]:
    """Compare a finished output with the start of a run; `sources` are from its manifest.

    Returns the record of its run, and a remark on each library that affected the output and has
    another version now. Such a version is not an error, because the output is finished.

    Raises:
        OutputConflictError: it was made from something else. The message lists the differences.
    """
    run = open_record(workspace.store, RUN_NAME, workspace.store.read(RUN_NAME), Run)

    def change_of(index: int) -> str:
        entry = sources[index]
        if entry.quarantined:
            return LEFT_OUT
        if limited:
            return STOPPED_AT_LIMIT
        rows = (run.row_digests or {}).get(str(index), "")
        return start.contents.change_since_build(index, entry.xxh3_128, rows)

    if lines := identity_differences(run.identity, start.identity, change_of):
        kind = workspace.kind
        raise OutputConflictError(
            f"the output folder holds {kind.other}",
            where=workspace.location,
            why=shown(lines),
            hint=f"choose another folder, or replace {kind.the} with --overwrite",
        )
    changed = version_differences(run.versions, start.identity.versions, start.deciding(run.engine))
    return run, [f"built with {name} {old}; {new} is installed" for name, old, new in changed]


def _moved_hint(stored: Mapping[str, str], identity: AnyIdentity, inputs: Sequence[str]) -> str:
    """Return a hint to name the commits that the inputs had when the build was started."""
    pinned = pinned_names(inputs, stored, identity.commits or {})
    return f"name the old commit, as in {', '.join(pinned)}; or " if pinned else ""

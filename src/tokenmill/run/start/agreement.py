"""May this run continue what is in the output folder, or is that something else?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from tokenmill.errors import InputChangedError, OutputConflictError, VerificationError
from tokenmill.read.sources import pinned_names
from tokenmill.run.commit.identity import (
    AnyIdentity,
    AnyState,
    identity_differences,
    shown,
    store_state,
    version_differences,
)
from tokenmill.run.commit.receipts import read_receipts
from tokenmill.run.commit.workspace import Workspace, locked
from tokenmill.run.start.contents import LEFT_OUT, LIMITED, Contents
from tokenmill.store.canonical import read_sealed
from tokenmill.store.manifest import RUN_NAME, Run, SourceEntry

S = TypeVar("S", bound=AnyState)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Start(Generic[S]):
    """What a run starts with, and what it takes to compare it."""

    noun: str
    """What errors call the run: "build"."""
    identity: AnyIdentity
    state: type[S]
    """The identity with what attempts find out."""
    inputs: Sequence[str]
    """As the user named them."""
    deciding: Callable[[str], frozenset[str]]
    """The libraries that decide the bytes, by the name of the engine."""
    contents: Contents


def found_before(
    workspace: Workspace, start: Callable[[], Start[S]], complete: Callable[[Start[S]], R]
) -> R | None:
    """What `complete` says of a finished output; None if there is something left to do.

    Raises:
        InputChangedError: something else was begun there.
    """
    if not (workspace.is_complete or workspace.state.is_file()):
        return None
    with locked(workspace):
        if workspace.is_complete:
            return complete(start())
        agree_on_start(workspace, start())
    return None


def agree_on_start(workspace: Workspace, start: Start[S]) -> S:
    """Store what a run starts with, or compare it with what it was started with.

    Raises:
        InputChangedError: they differ; the message holds the differences.
        VerificationError: what was stored is damaged.
    """
    identity = start.identity
    if not workspace.state.is_file():
        state = msgspec.convert(msgspec.to_builtins(identity), start.state)
        store_state(workspace, state)
        return state
    data = workspace.state.read_bytes()
    try:
        state = msgspec.json.decode(data, type=start.state)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise VerificationError(
            "the file is damaged",
            where=str(workspace.state),
            why=str(error),
            hint="start again with --overwrite, or choose another --out",
        ) from error
    receipts = read_receipts(workspace.receipts, workspace.shards)
    lines = identity_differences(
        msgspec.json.decode(data),
        identity,
        lambda index: (
            LEFT_OUT
            if index in state.quarantined
            else start.contents.change_since_receipts(index, receipts)
        ),
    )
    if engine := state.calibrated_engine:  # before the first receipt, no library has decided
        changed = version_differences(state.versions, identity.versions, start.deciding(engine))
        lines += [f"{name}: was version {old}, is {new}" for name, old, new in changed]
    if lines:
        raise InputChangedError(
            f"the {start.noun} cannot be resumed: it was started with something else",
            where=str(workspace.out),
            why=shown(lines),
            hint=_moved_hint(state, identity, start.inputs)
            + "undo the change, choose another --out, or start again with --overwrite",
        )
    if state.inputs != identity.inputs:  # only their times
        state.inputs = identity.inputs
        store_state(workspace, state)
    return state


def agree_on_finished(
    workspace: Workspace, start: Start[S], sources: Sequence[SourceEntry], *, limited: bool
) -> tuple[Run, list[str]]:
    """Compare something finished with what a run starts with; `sources` are those in its manifest.

    Returns how it was made, and a remark on every library that had a say in it and has another
    version now: it is finished, so none of them can change it.

    Raises:
        OutputConflictError: it was made of something else; the message holds the differences.
    """
    run = read_sealed(workspace.out / RUN_NAME, Run)

    def change_of(index: int) -> str:
        entry = sources[index]
        if entry.quarantined:
            return LEFT_OUT
        if limited:
            return LIMITED
        rows = (run.row_digests or {}).get(str(index), "")
        return start.contents.change_since_build(index, entry.xxh3_128, rows)

    if lines := identity_differences(run.identity, start.identity, change_of):
        kind = workspace.kind
        raise OutputConflictError(
            f"the output folder holds {kind.other}",
            where=str(workspace.out),
            why=shown(lines),
            hint=f"choose another folder, or replace {kind.the} with --overwrite",
        )
    changed = version_differences(run.versions, start.identity.versions, start.deciding(run.engine))
    return run, [f"built with {name} {old}; {new} is installed" for name, old, new in changed]


def _moved_hint(stored: AnyIdentity, identity: AnyIdentity, inputs: Sequence[str]) -> str:
    """How to resume with what the inputs stood for when the build was started."""
    pinned = pinned_names(inputs, stored.commits or {}, identity.commits or {})
    return f"name the old commit, as in {', '.join(pinned)}; or " if pinned else ""

"""May this run continue what is in the output folder, or is that something else?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from tokenmill.errors import InputChangedError, OutputConflictError, VerificationError
from tokenmill.read.sources import pinned_names
from tokenmill.run.commit.identity import (
    AnyIdentity,
    AnyState,
    BuildState,
    identity_differences,
    shown,
    store_state,
    version_differences,
)
from tokenmill.run.commit.receipts import read_receipts
from tokenmill.run.commit.workspace import Workspace
from tokenmill.run.start.contents import LEFT_OUT, LIMITED, Contents
from tokenmill.store.canonical import read_sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import RUN_NAME, Run, SourceEntry

S = TypeVar("S", bound=AnyState)


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


def agree_on_dataset(workspace: Workspace, start: Start[BuildState]) -> tuple[Run, list[str]]:
    """Compare a finished dataset with what a build starts with.

    Returns how it was built, and a remark on every library that had a say in it and has another
    version now: it is finished, so none of them can change it.

    Raises:
        OutputConflictError: it is another dataset; the message holds the differences.
    """
    dataset = Dataset(workspace.out)
    run = read_sealed(workspace.out / RUN_NAME, Run)
    read = dataset.policies.read
    finished = Finished(
        identity=run.identity,
        versions=run.versions,
        engine=run.engine,
        sources=dataset.manifest.sources,
        row_digests=run.row_digests or {},
        limited=read.max_documents is not None or read.max_tokens is not None,
    )
    return run, agree_on_finished(workspace, start, finished)


@dataclass(frozen=True, slots=True)
class Finished:
    """How something finished was made."""

    identity: dict[str, Any]
    versions: dict[str, str]
    engine: str
    sources: Sequence[SourceEntry]
    row_digests: Mapping[str, str]
    limited: bool


def agree_on_finished(workspace: Workspace, start: Start[S], finished: Finished) -> list[str]:
    """Compare something finished with what a run starts with; returns the remarks.

    Raises:
        OutputConflictError: it was made of something else; the message holds the differences.
    """

    def change_of(index: int) -> str:
        entry = finished.sources[index]
        if entry.quarantined:
            return LEFT_OUT
        if finished.limited:
            return LIMITED
        rows = finished.row_digests.get(str(index), "")
        return start.contents.change_since_build(index, entry.xxh3_128, rows)

    if lines := identity_differences(finished.identity, start.identity, change_of):
        kind = workspace.kind
        raise OutputConflictError(
            f"the output folder holds {kind.other}",
            where=str(workspace.out),
            why=shown(lines),
            hint=f"choose another folder, or replace {kind.the} with --overwrite",
        )
    changed = version_differences(
        finished.versions, start.identity.versions, start.deciding(finished.engine)
    )
    return [f"built with {name} {old}; {new} is installed" for name, old, new in changed]


def _moved_hint(stored: AnyIdentity, identity: AnyIdentity, inputs: Sequence[str]) -> str:
    """How to resume with what the inputs stood for when the build was started."""
    pinned = pinned_names(inputs, stored.commits or {}, identity.commits or {})
    return f"name the old commit, as in {', '.join(pinned)}; or " if pinned else ""

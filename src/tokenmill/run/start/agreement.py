"""May this build continue what is in the output folder, or is that something else?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tokenmill.errors import InputChangedError, OutputConflictError, VerificationError
from tokenmill.read.sources import pinned_names
from tokenmill.run.commit.identity import (
    BuildState,
    Identity,
    deciding_libraries,
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
from tokenmill.store.manifest import RUN_NAME, Run


@dataclass(frozen=True, slots=True)
class Start:
    """What a build starts with, and what it takes to compare it."""

    identity: Identity
    inputs: Sequence[str]
    """As the user named them."""
    tokenizer_kind: str
    contents: Contents

    def deciding(self, engine: str) -> frozenset[str]:
        """The libraries that decide the bytes, if `engine` encodes."""
        return deciding_libraries(self.tokenizer_kind, engine, self.contents.sources)


def agree_on_start(workspace: Workspace, start: Start) -> BuildState:
    """Store what a build starts with, or compare it with what it was started with.

    Raises:
        InputChangedError: they differ; the message holds the differences.
        VerificationError: what was stored is damaged.
    """
    identity = start.identity
    if not workspace.state.is_file():
        state = msgspec.convert(msgspec.to_builtins(identity), BuildState)
        store_state(workspace, state)
        return state
    data = workspace.state.read_bytes()
    try:
        state = msgspec.json.decode(data, type=BuildState)
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
            "the build cannot be resumed: it was started with something else",
            where=str(workspace.out),
            why=shown(lines),
            hint=_moved_hint(state, identity, start.inputs)
            + "undo the change, choose another --out, or start again with --overwrite",
        )
    if state.inputs != identity.inputs:  # only their times
        state.inputs = identity.inputs
        store_state(workspace, state)
    return state


def agree_on_dataset(workspace: Workspace, start: Start) -> tuple[Run, list[str]]:
    """Compare a finished dataset with what a build starts with.

    Returns how it was built, and a remark on every library that had a say in it and has another
    version now: it is finished, so none of them can change it.

    Raises:
        OutputConflictError: it is another dataset; the message holds the differences.
    """
    dataset = Dataset(workspace.out)
    run = read_sealed(workspace.out / RUN_NAME, Run)
    entries = dataset.manifest.sources
    read = dataset.policies.read
    limited = read.max_documents is not None or read.max_tokens is not None

    def change_of(index: int) -> str:
        if entries[index].quarantined:
            return LEFT_OUT
        if limited:
            return LIMITED
        rows = (run.row_digests or {}).get(str(index), "")
        return start.contents.change_since_build(index, entries[index].xxh3_128, rows)

    if lines := identity_differences(run.identity, start.identity, change_of):
        raise OutputConflictError(
            "the output folder holds another dataset",
            where=str(workspace.out),
            why=shown(lines),
            hint="choose another folder, or replace the dataset with --overwrite",
        )
    changed = version_differences(run.versions, start.identity.versions, start.deciding(run.engine))
    return run, [f"built with {name} {old}; {new} is installed" for name, old, new in changed]


def _moved_hint(stored: BuildState, identity: Identity, inputs: Sequence[str]) -> str:
    """How to resume with what the inputs stood for when the build was started."""
    pinned = pinned_names(inputs, stored.commits or {}, identity.commits or {})
    return f"name the old commit, as in {', '.join(pinned)}; or " if pinned else ""

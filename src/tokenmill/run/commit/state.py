"""`build.json`: what a build was started with, and what its attempts have found out."""

from __future__ import annotations

import msgspec

from tokenmill.run.commit.identity import Identity
from tokenmill.run.commit.workspace import Workspace
from tokenmill.store.files import write_atomically
from tokenmill.store.manifest import Attempt


class BuildState(Identity, kw_only=True):
    """What the next attempt must know beside the receipts."""

    quarantined: dict[int, str] = msgspec.field(default_factory=dict)
    """Why damaged sources were left out, by index."""
    calibrated_engine: str = ""
    """The engine of all receipts; "" before the first."""
    attempts: list[Attempt] = msgspec.field(default_factory=list)


def store_state(workspace: Workspace, state: BuildState) -> None:
    """Store what the build agrees on from now on."""
    write_atomically(workspace.state, msgspec.json.encode(state))

"""Notes of items that failed on an agent: `work/failed/ITEM.AGENT.json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from tokenmill.errors import (
    DamagedInputError,
    DataError,
    EngineError,
    InputChangedError,
    InternalError,
    OutputConflictError,
    StorageError,
    TokenmillError,
    UserError,
    VerificationError,
)
from tokenmill.run.agents.agent import is_agent
from tokenmill.store.canonical import canonical_json
from tokenmill.store.objects.object_store import ObjectStore

FOLDER = "work/failed"
_KINDS: dict[str, type[TokenmillError]] = {
    kind.__name__: kind
    for kind in (
        DamagedInputError, DataError, EngineError, InputChangedError, InternalError,
        OutputConflictError, StorageError, UserError, VerificationError,
    )
}  # fmt: skip
_Text = Annotated[str, Meta(max_length=10_000)]


class _Note(msgspec.Struct, frozen=True):
    kind: _Text
    what: _Text
    where: _Text
    why: _Text
    hint: _Text


def note_failure(store: ObjectStore, item: str, agent: str, error: TokenmillError) -> None:
    """Tell all agents that an item failed on this one."""
    kind = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS), "")
    texts = (text[:10_000] for text in (error.what, error.where, error.why, error.hint))
    store.create(_name(item, agent), canonical_json(_Note(kind, *texts)), durable=False)


def noted_failure(store: ObjectStore, item: str, agent: str) -> TokenmillError:
    """The error that an item failed with on an agent."""
    try:
        note = msgspec.json.decode(store.read(_name(item, agent)) or b"", type=_Note)
    except (ValueError, RecursionError):
        return EngineError(f"{item} failed on the agent {agent}", why="its note cannot be read")
    kind = _KINDS.get(note.kind, EngineError)
    return kind(note.what, where=note.where, why=note.why, hint=note.hint)


def failed_agents(store: ObjectStore, is_past: Callable[[str], bool]) -> dict[str, set[str]]:
    """By item: the agents that it failed on, without those that ended before the caller began."""
    found: dict[str, set[str]] = {}
    for entry in store.entries(FOLDER):
        name = entry.name.rpartition("/")[2].removesuffix(".json")
        item, _, agent = name.partition(".")
        if is_agent(agent) and not is_past(agent):
            found.setdefault(item, set()).add(agent)
    return found


def _name(item: str, agent: str) -> str:
    return f"{FOLDER}/{item}.{agent}.json"

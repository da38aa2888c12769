"""Records of items that failed on an agent: `work/failed/ITEM.AGENT.json`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import EngineError, TokenmillError
from tokenmill.run.agents.agent import is_agent
from tokenmill.store.canonical import canonical_json
from tokenmill.store.objects.object_store import ObjectStore

FOLDER = "work/failed"


def note_failure(store: ObjectStore, item: str, agent: str, error: TokenmillError) -> None:
    """Store that an item failed on an agent, for the other agents."""
    store.create(_name(item, agent), canonical_json(ErrorRecord.of(error)), durable=False)


def noted_failure(store: ObjectStore, item: str, agent: str) -> TokenmillError:
    """Return the error of an item that failed on an agent."""
    try:
        data = store.read(_name(item, agent)) or b""
        return msgspec.json.decode(data, type=ErrorRecord).rebuild()
    except (ValueError, RecursionError):
        return EngineError(f"{item} failed on the agent {agent}", why="its error is unreadable")


def failed_agents(store: ObjectStore, is_past: Callable[[str], bool]) -> dict[str, set[str]]:
    """Return the agents that each item failed on, except agents that are past."""
    found: dict[str, set[str]] = {}
    for entry in store.entries(FOLDER):
        name = entry.name.rpartition("/")[2].removesuffix(".json")
        item, _, agent = name.partition(".")
        if is_agent(agent) and not is_past(agent):
            found.setdefault(item, set()).add(agent)
    return found


def _name(item: str, agent: str) -> str:
    return f"{FOLDER}/{item}.{agent}.json"

"""The names of agents, and the state that each stores in `work/agents/AGENT.json`."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from tokenmill.run.agents.shard import Shard
from tokenmill.store.manifest import Attempt
from tokenmill.store.objects.object_store import ObjectStore

FOLDER = "work/agents"
MAX_STATE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}-[0-9a-f]{8}")
_Count = Annotated[int, Meta(ge=0, le=2**62)]
_Text = Annotated[str, Meta(max_length=1000)]


@dataclass(frozen=True, slots=True)
class Agent:
    """One run of an agent. A restarted agent keeps its `place`, and gets a new `life`."""

    place: str
    life: str

    @property
    def name(self) -> str:
        """A unique name such as "00003-9f3a2c55"."""
        return f"{self.place}-{self.life}"


def new_agent(shard: Shard | None) -> Agent:
    """Return an agent for this process. Without a shard, its place is the host name."""
    place = shard.place if shard else re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:80]
    return Agent(place or "-", secrets.token_hex(4))


def place_of(agent: str) -> str:
    """Return the place in an agent's name."""
    return agent.rpartition("-")[0]


class Tallies(msgspec.Struct, frozen=True, kw_only=True):
    """The work that an agent has done since it started, and the items that it holds."""

    documents: _Count = 0
    tokens: _Count = 0
    bytes_done: _Count = 0
    """Input bytes on disk of finished units, and of the finished parts of running units."""
    bytes_total: _Count = 0
    """Input bytes on disk of the whole build."""
    items: Annotated[list[_Text], Meta(max_length=10_000)] = []
    """The items that it holds."""


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """A heart-beat, which informs other agents and `tokenmill status`."""

    agent: _Text
    counter: _Count
    host: _Text = ""
    pid: _Count = 0
    workers: _Count = 0
    seconds: Annotated[float, Meta(ge=0, le=1e12)] = 0
    """How long the agent has been running."""
    clock: Annotated[float, Meta(ge=0, le=1e12)] = 0
    """Seconds since 1970 by the agent's clock. Only for display."""
    versions: dict[_Text, _Text] = {}
    attempt: Attempt | None = None
    tallies: Tallies = Tallies()
    left: _Text = ""
    """Why the agent has left. "" while it runs."""


def state_name(agent: str) -> str:
    """Return the name of the object with an agent's state."""
    return f"{FOLDER}/{agent}.json"


def listed_agents(store: ObjectStore) -> Iterator[str]:
    """Yield the names of all present and past agents, in any order. New agents may be missing."""
    for entry in store.entries(FOLDER):
        if entry.num_bytes > MAX_STATE_BYTES:
            continue
        name = entry.name.rpartition("/")[2].removesuffix(".json")
        if is_agent(name):
            yield name


def is_agent(name: str) -> bool:
    """Whether this is a valid name of an agent."""
    return _NAME.fullmatch(name) is not None


def parse_state(data: bytes | None) -> AgentState | None:
    """Return the state of an agent, or None if it cannot be read."""
    try:
        return msgspec.json.decode(data or b"", type=AgentState)
    except (ValueError, RecursionError):
        return None

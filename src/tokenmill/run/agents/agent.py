"""Agents by name, and what each says of itself in `work/agents/AGENT.json`."""

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
    """One life of an agent: its place outlives it, the word after that is never used again."""

    place: str
    life: str

    @property
    def name(self) -> str:
        """As "00003-9f3a2c55"; no other process has ever had it."""
        return f"{self.place}-{self.life}"


def new_agent(shard: Shard | None) -> Agent:
    """An agent for this process; without a shard its place is the host."""
    place = shard.place if shard else re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:80]
    return Agent(place or "-", secrets.token_hex(4))


def place_of(agent: str) -> str:
    """The place in an agent's name."""
    return agent.rpartition("-")[0]


class Tallies(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent has done in its life, and what it is at."""

    documents: _Count = 0
    tokens: _Count = 0
    bytes_done: _Count = 0
    """Input bytes on disk, of finished units and of parts of those that are running."""
    bytes_total: _Count = 0
    """Of the whole build."""
    items: Annotated[list[_Text], Meta(max_length=10_000)] = []
    """The items that it holds."""


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """A heart-beat: a hint for other agents, and for people."""

    agent: _Text
    counter: _Count
    host: _Text = ""
    pid: _Count = 0
    workers: _Count = 0
    seconds: Annotated[float, Meta(ge=0, le=1e12)] = 0
    """How long the agent has been at work."""
    clock: Annotated[float, Meta(ge=0, le=1e12)] = 0
    """Seconds since 1970 by its machine: only people look at it."""
    versions: dict[_Text, _Text] = {}
    attempt: Attempt | None = None
    tallies: Tallies = Tallies()
    left: _Text = ""
    """Why the agent has left; "" while it is at work."""


def state_name(agent: str) -> str:
    """The name of the object in which an agent says how it is."""
    return f"{FOLDER}/{agent}.json"


def listed_agents(store: ObjectStore) -> Iterator[str]:
    """Yield the names of all agents that ever were, in any order; the newest may be missing."""
    for entry in store.entries(FOLDER):
        if entry.num_bytes > MAX_STATE_BYTES:
            continue
        name = entry.name.rpartition("/")[2].removesuffix(".json")
        if is_agent(name):
            yield name


def is_agent(name: str) -> bool:
    """Whether an agent can have this name."""
    return _NAME.fullmatch(name) is not None


def parse_state(data: bytes | None) -> AgentState | None:
    """What an agent said; None where it said nothing that can be read."""
    try:
        return msgspec.json.decode(data or b"", type=AgentState)
    except (ValueError, RecursionError):
        return None

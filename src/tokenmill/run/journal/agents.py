"""Agents: their names, their heartbeats in `work/agents/AGENT.json`, and which of them are gone.

Clocks of different machines are never compared. An agent counts as gone if its counter did not
change in three looks, each at least as far apart as its beats by this process's monotonic clock. An
outage of the store or of this process does not count as a look.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from tokenmill.core.errors import StorageError
from tokenmill.run.launch import AgentShare
from tokenmill.run.progress import ProgressBoard, RunningUnit, Snapshot
from tokenmill.store.canonical import canonical_json
from tokenmill.store.manifest import Attempt
from tokenmill.store.objects.object_store import ObjectStore

FOLDER = "work/agents"
MAX_STATE_BYTES = 1 << 20
MAX_ITEMS = 1000
"""The most items that a beat names."""
LEAST_BEAT_SECONDS = 2.0
MOST_BEAT_SECONDS = 20.0
LAST_BEAT_SECONDS = 5.0
"""How long an agent waits until its last beat is stored."""
LOOKS_UNTIL_SILENT = 3
MOST_PATIENCE_SECONDS = 3600.0
BYTES_PER_SECOND = 10_000_000
"""What an agent reads at least, on most machines."""
BEATS_PER_SECOND = 10
"""Beats of all agents together, so that many small shares do not flood the store."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}-[0-9a-f]{8}")
_Count = Annotated[int, Meta(ge=0, le=2**62)]
_Text = Annotated[str, Meta(max_length=1000)]


def new_agent(share: AgentShare | None) -> str:
    """Return a name for this process as an agent, such as "00003-9f3a2c55".

    A restarted agent keeps the first part, its place, and gets a new second part. Without a share,
    its place is the host name.
    """
    place = share.place if share else re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:80]
    return f"{place or '-'}-{secrets.token_hex(4)}"


def place_of(agent: str) -> str:
    """Return the place in an agent's name."""
    return agent.rpartition("-")[0]


_Seconds = Annotated[float, Meta(ge=0, le=1e12)]


def beat_seconds_for(share: AgentShare | None, num_bytes: int, patience: float | None) -> float:
    """Return the time between beats of an agent, and between its looks at others.

    A third of `patience`. By default a tenth of the time that its share of the input bytes takes,
    between 2 and 20 s; 2 s for a process that is not one of many.
    """
    if patience is not None:
        return patience / LOOKS_UNTIL_SILENT
    if share is None:
        return LEAST_BEAT_SECONDS
    expected = num_bytes / share.count / BYTES_PER_SECOND
    wanted = max(expected / 10, share.count / BEATS_PER_SECOND, LEAST_BEAT_SECONDS)
    return min(wanted, MOST_BEAT_SECONDS)


class Tallies(msgspec.Struct, frozen=True, kw_only=True):
    """The work that an agent has done, and the items that it holds.

    If it began alone, all includes what earlier attempts had finished, and those have ended.
    """

    documents: _Count = 0
    tokens: _Count = 0
    bytes_done: _Count = 0
    """Input bytes on disk of finished units, and of the finished parts of running units."""
    bytes_total: _Count = 0
    """Input bytes on disk of the whole build."""
    items: Annotated[list[_Text], Meta(max_length=10_000)] = []
    """The items that it holds."""
    alone: bool = False
    resumed_bytes: _Count = 0
    """The part of `bytes_done` that earlier attempts had finished."""
    finished_bytes: _Count = 0
    """Input bytes on disk of finished units."""
    disk_bytes: _Count = 0
    """Bytes of the files of finished units."""
    rejected: Annotated[dict[_Text, _Count], Meta(max_length=100)] = {}
    """Rejected records of finished units, by reason."""
    stages: Annotated[dict[_Text, _Seconds], Meta(max_length=100)] = {}
    """Seconds of all workers by stage."""
    last_unit: RunningUnit | None = None
    """The running unit that will end last."""
    memory_bytes: _Count = 0
    """The memory of the agent and its workers."""


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat, which informs other agents and `tokenmill status`."""

    agent: _Text
    counter: _Count
    host: _Text = ""
    pid: _Count = 0
    workers: _Count = 0
    seconds: _Seconds = 0
    """How long the agent has been running."""
    clock: _Seconds = 0
    """Seconds since 1970 by the agent's clock. Only for display."""
    beat_seconds: _Seconds = MOST_BEAT_SECONDS
    """The time between two beats."""
    versions: dict[_Text, _Text] = {}
    attempt: Attempt | None = None
    tallies: Tallies = Tallies()
    left: _Text = ""
    """Why the agent has left. "" while it runs."""


def state_name(agent: str) -> str:
    """Return the name of the object with an agent's state."""
    return f"{FOLDER}/{agent}.json"


def is_agent(name: str) -> bool:
    """Whether this is a valid name of an agent."""
    return _NAME.fullmatch(name) is not None


def parse_state(data: bytes | None) -> AgentState | None:
    """Return the state of an agent, or None if it cannot be read."""
    try:
        return msgspec.json.decode(data or b"", type=AgentState)
    except (ValueError, RecursionError):
        return None


def read_states(
    store: ObjectStore, others: Iterable[str] = ()
) -> Iterator[tuple[str, AgentState | None]]:
    """Yield all present and past agents and their states; None if a state cannot be read.

    The listing may miss new agents, except those in `others`.
    """
    sizes = store.sizes(FOLDER).items()
    listed = (_agent_at(path) for path, num_bytes in sizes if num_bytes <= MAX_STATE_BYTES)
    agents = {*filter(is_agent, listed), *others}
    for path, data in store.read_all(map(state_name, agents)):
        yield _agent_at(path), parse_state(data)


def states(store: ObjectStore) -> list[AgentState]:
    """Return the states of all agents, sorted by name. Unreadable states are left out."""
    found = (state for _, state in read_states(store) if state)
    return sorted(found, key=lambda state: state.agent)


def _agent_at(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")


def attempts_of(store: ObjectStore) -> list[Attempt]:
    """Return all attempts at a run, in the order of their start."""
    found = [(state, state.attempt) for state in states(store) if state.attempt]
    # `started` counts whole seconds; the clock of the last beat is finer.
    found.sort(key=lambda each: (each[1].started, each[0].clock - each[0].seconds))
    return [attempt for _, attempt in found]


class HeartBeat:
    """Replaces this agent's state every few seconds, from before the first claim to the end.

    An error of the store does not end the build. Others may take the agent for dead, which only
    costs time.
    """

    def __init__(
        self,
        store: ObjectStore,
        agent: str,
        attempt: Attempt,
        versions: dict[str, str],
        *,
        beat_seconds: float = LEAST_BEAT_SECONDS,
        alone: bool = False,
    ) -> None:
        self.tallies = Tallies(alone=alone)
        """The contents of the next beat. Any thread may replace the object."""
        self.attempt = attempt
        self._beat_seconds = beat_seconds
        self._store, self._agent, self._versions = store, agent, versions
        self._started = time.monotonic()
        self._counter, self._left = 0, ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")

    def tell(self, snapshot: Snapshot, board: ProgressBoard, items: Collection[str]) -> None:
        """Put the agent's progress and the items that it holds into the next beat."""
        self.attempt.recycled_workers = board.num_recycled
        self.tallies = Tallies(
            documents=snapshot.documents,
            tokens=snapshot.tokens,
            bytes_done=snapshot.done_bytes,
            bytes_total=snapshot.total_bytes,
            items=sorted(items)[:MAX_ITEMS],
            alone=self.tallies.alone,
            resumed_bytes=snapshot.resumed_bytes,
            finished_bytes=board.finished_bytes,
            disk_bytes=board.disk_bytes,
            rejected=snapshot.rejected_by_reason,
            stages=snapshot.stage_seconds,
            last_unit=board.last_unit(),
            memory_bytes=snapshot.memory_bytes,
        )

    def begin(self) -> None:
        """Store the first beat, so that claims have an owner, and beat until `end`."""
        self._beat()
        self._thread.start()

    def end(self, why: str) -> None:
        """Store that this agent leaves, and why. Others take over its items at once."""
        if self._ending.is_set():
            return
        self._left = why or "done"
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(LAST_BEAT_SECONDS)

    def _run(self) -> None:
        while not self._ending.wait(self._beat_seconds):
            self._beat()
        self._beat()

    def _beat(self) -> None:
        self._counter += 1
        state = AgentState(
            agent=self._agent,
            counter=self._counter,
            host=socket.gethostname()[:1000],
            pid=os.getpid(),
            workers=self.attempt.workers,
            seconds=round(time.monotonic() - self._started, 3),
            clock=round(time.time(), 3),
            beat_seconds=self._beat_seconds,
            versions=self._versions,
            attempt=self.attempt,
            tallies=self.tallies,
            left=self._left[:1000],
        )
        try:
            self._store.replace(state_name(self._agent), canonical_json(state))
        except StorageError:
            return  # the next beat may get through


@dataclass(slots=True)
class _Seen:
    counter: int
    looked_at: float
    """When the counter was first seen, or last looked at after a pause as long as its beats."""
    unchanged_looks: int = 0
    has_changed: bool = False
    left: bool = False

    @property
    def is_gone(self) -> bool:
        return self.left or self.unchanged_looks >= LOOKS_UNTIL_SILENT


class Watch:
    """An agent's view of the other agents. With `alone`, all of them are known to have ended."""

    def __init__(
        self,
        store: ObjectStore,
        agent: str,
        clock: Callable[[], float],
        *,
        look_seconds: float,
        alone: bool,
    ) -> None:
        self._store, self._agent, self._clock, self._alone = store, agent, clock, alone
        self.look_seconds = look_seconds
        self.owners: set[str] = set()
        """Agents that hold items: they are watched even if they are not listed."""
        self._seen: dict[str, _Seen] = {}
        self._past: set[str] = set()
        self._first: frozenset[str] = frozenset()
        """Agents that were there when this one started."""
        self._next_look = clock() + look_seconds
        if alone:
            return
        self._read()
        self._first = frozenset(self._seen)
        self._past = {
            name
            for name, seen in self._seen.items()
            if seen.left or place_of(name) == place_of(agent)  # an earlier run of this agent
        }

    def is_past(self, agent: str) -> bool:
        """Whether an agent is known to have ended before this one started."""
        return agent in self._past or (self._alone and agent != self._agent)

    def is_gone(self, agent: str) -> bool:
        """Whether an agent has left, is silent, or was an earlier run of this agent."""
        seen = self._seen.get(agent)
        return self.is_past(agent) or (seen is not None and seen.is_gone)

    @property
    def others(self) -> list[str]:
        """The names of agents that are not known to be gone."""
        return sorted(name for name in self._seen if not self.is_gone(name))

    @property
    def living(self) -> list[str]:
        """The names of agents that are known to be running."""
        return [name for name in self.others if self._seen[name].has_changed]

    def look(self) -> None:
        """Read all heartbeats, unless it is too early."""
        if self._alone or self._clock() < self._next_look:
            return
        try:
            self._read()
        except StorageError:
            return  # an outage is no look
        finally:
            self._next_look = self._clock() + self.look_seconds

    def _read(self) -> None:
        for agent, state in read_states(self._store, {*self._seen, *self.owners}):
            if agent != self._agent:
                self._note(agent, state)

    def _note(self, agent: str, state: AgentState | None) -> None:
        counter, now = state.counter if state else -1, self._clock()
        left = bool(state and state.left)
        seen = self._seen.get(agent)
        if seen is None:
            self._seen[agent] = _Seen(counter, now, left=left)
            return
        seen.left = left
        if counter != seen.counter:
            seen.counter, seen.unchanged_looks, seen.has_changed = counter, 0, True
            seen.looked_at = now
            self._past.discard(agent)  # it is alive: two agents share a place
            return
        if state and now - seen.looked_at < min(state.beat_seconds, MOST_PATIENCE_SECONDS):
            return  # its next beat is not due
        seen.looked_at = now
        seen.unchanged_looks += 1
        if seen.is_gone and not seen.has_changed and agent in self._first:
            self._past.add(agent)

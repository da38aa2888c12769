"""Decide which agents are running or gone.

Clocks of different machines are never compared. An agent counts as gone if its counter did not
change in three looks, each at least 20 s apart by this process's monotonic clock. An outage of the
store or of this process does not count as a look.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tokenmill.core.errors import StorageError
from tokenmill.run.agents.agent import Agent, listed_agents, parse_state, place_of, state_name
from tokenmill.store.objects.object_store import ObjectStore

LOOK_SECONDS = 20.0
LOOKS_UNTIL_SILENT = 3
NUM_WATCHED = 32
"""How many agents each agent watches: those that follow it by name."""
MAX_ASKED = 64


@dataclass(slots=True)
class _Seen:
    counter: int = -1
    unchanged_looks: int = 0
    has_changed: bool = False
    left: bool = False

    @property
    def is_gone(self) -> bool:
        return self.left or self.unchanged_looks >= LOOKS_UNTIL_SILENT


class Watch:
    """An agent's view of the other agents."""

    def __init__(
        self, store: ObjectStore, agent: Agent, clock: Callable[[], float], *, alone: bool
    ) -> None:
        self._store, self._agent, self._clock, self._alone = store, agent, clock, alone
        self.asked: Collection[str] = ()
        """More agents to watch: those that hold the items that this agent waits for."""
        self._seen: dict[str, _Seen] = {}
        self._present = sorted(name for name in listed_agents(store) if name != agent.name)
        self._past: set[str] = set()
        self._next_look = clock() + LOOK_SECONDS
        others = [name for name in self._present if place_of(name) != agent.place]
        self._read(others)
        self._past = {name for name in self._present if self._ended_before(name)}
        self._first = frozenset(self._present)

    def is_past(self, agent: str) -> bool:
        """Whether an agent is known to have ended before this one started."""
        return agent in self._past or (self._alone and agent != self._agent.name)

    def is_gone(self, agent: str) -> bool:
        """Whether an agent has left, is silent, or was an earlier run of this agent."""
        if agent == self._agent.name:
            return False
        if self.is_past(agent):
            return True
        seen = self._seen.get(agent)
        return seen is not None and seen.is_gone

    @property
    def others(self) -> list[str]:
        """The names of agents that are not known to be gone."""
        return [name for name in self._present if not self.is_gone(name)]

    @property
    def living(self) -> list[str]:
        """The names of agents that are known to be running."""
        return [name for name in self.others if name in self._seen and self._seen[name].has_changed]

    def look(self) -> bool:
        """Read the counters of the agents to watch.

        These are agents that follow this one by name, the first agents, and those in `asked`.
        Returns False if it was too early, or the store did not answer.
        """
        if self._alone or self._clock() < self._next_look:
            return False
        try:
            present = {name for name in listed_agents(self._store) if name != self._agent.name}
            self._present = sorted(present.union(self._present))
            self._read(self._chosen())
        except StorageError:
            return False
        finally:
            self._next_look = self._clock() + LOOK_SECONDS
        return True

    def _chosen(self) -> Collection[str]:
        alive = [name for name in self._present if name in self._past or not self.is_gone(name)]
        start = bisect(alive, self._agent.name)
        ring = [*alive[start:], *alive[:start]]
        wanted = {*self.asked} - {self._agent.name}
        nearest = [*(name for name in ring if name in wanted), *(wanted - {*ring})]
        return {*ring[:NUM_WATCHED], *alive[:8], *nearest[:MAX_ASKED]}

    def _read(self, agents: Collection[str]) -> None:
        if self._alone:
            return
        names = {state_name(agent): agent for agent in agents}
        for name, data in self._store.read_all(names):
            self._note(names[name], data)

    def _note(self, agent: str, data: bytes | None) -> None:
        state = parse_state(data)
        counter = state.counter if state else -1
        seen = self._seen.get(agent)
        if seen is None:
            self._seen[agent] = _Seen(counter, left=bool(state and state.left))
            return
        seen.left = bool(state and state.left)
        if counter == seen.counter:
            seen.unchanged_looks += 1
            if seen.is_gone and not seen.has_changed and agent in self._first:
                self._past.add(agent)
        else:
            seen.counter, seen.unchanged_looks, seen.has_changed = counter, 0, True
            self._past.discard(agent)  # it is alive: two agents share a place

    def _ended_before(self, agent: str) -> bool:
        seen = self._seen.get(agent)
        return self._alone or place_of(agent) == self._agent.place or bool(seen and seen.left)

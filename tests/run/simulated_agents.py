"""Agents with the real code for claims, on a simulated store, with simulated clocks and failures.

Used by the tests of claims and by bench/cluster.py. Only time is simulated: every request of an
agent reaches `MemoryStore` at once, and its latency delays that agent's main loop.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memory_store import MemoryStore

from tokenmill.core.errors import EngineError
from tokenmill.run.journal.agents import AgentState, place_of, state_name
from tokenmill.run.journal.claims import Claims
from tokenmill.run.launch import AgentShare
from tokenmill.store.canonical import canonical_json

BEAT_SECONDS = 20.0


@dataclass(slots=True)
class Costs:
    """What simulated work takes, in seconds and requests."""

    unit_seconds: Callable[[str], float] = lambda item: 10.0
    latency: float = 0.0
    requests_of_unit: int = 0
    """PUT requests that store a unit, beside those for its claim and its receipt."""
    max_rate: float = 0.0
    """Requests that change objects, a second, for the whole store; 0: any number."""
    start_seconds: float = 0.0
    refresh_seconds: float = 2.0


class DelayedStore:
    """The store as one agent sees it: requests take time; an ObjectStore."""

    location = "simulated"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.delay = 0.0
        """Seconds that the requests of one turn of the agent's main loop took."""

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:
        self._change()
        found = self._cluster.store.create(name, data)
        if found != data:
            self._read()
        return found

    def replace(self, name: str, data: bytes) -> None:
        self._change()
        self._cluster.store.replace(name, data)

    def read(self, name: str) -> bytes | None:
        self._read()
        return self._cluster.store.read(name)

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        wanted = list(names)
        self.delay += self._cluster.costs.latency * (len(wanted) / 128 + (len(wanted) > 0))
        return self._cluster.store.read_all(wanted)

    def sizes(self, folder: str) -> dict[str, int]:
        sizes = self._cluster.store.sizes(folder)
        pages = 1 + len(sizes) // 1000
        self._cluster.store.requests["page"] += pages
        self.delay += pages * 2 * self._cluster.costs.latency
        return sizes

    def size(self, name: str) -> int | None:
        data = self.read(name)
        return None if data is None else len(data)

    def add_files(self, files: Mapping[str, Path]) -> None:
        raise NotImplementedError

    def remove(self, names: Iterable[str]) -> None:
        raise NotImplementedError

    def _read(self) -> None:
        self.delay += self._cluster.costs.latency

    def _change(self) -> None:
        self.delay += self._cluster.costs.latency + self._cluster.wait_for_rate(self.delay, 1)


@dataclass(slots=True)
class Node:
    """One life of an agent."""

    agent: str
    claims: Claims
    store: DelayedStore
    workers: int
    speed: float
    """By how much its units take longer than others."""
    counter: int = 0
    busy_until: float = 0.0
    frozen_until: float = 0.0
    running: set[str] = field(default_factory=set)
    ended: str = ""
    next_refresh: float = 0.0

    @property
    def room(self) -> int:
        return self.workers - len(self.running)


class Cluster:
    """Agents, their clocks, and everything that happens to them, in the order of time."""

    def __init__(self, items: Sequence[str], costs: Costs | None = None, lag: float = 0.0) -> None:
        self.items, self.costs = items, costs or Costs()
        self.now = 0.0
        self.store = MemoryStore(lambda: self.now, lag)
        self.done: dict[str, float] = {}
        """When each item got its receipt."""
        self.runs: Counter[str] = Counter()
        """How often each item was begun."""
        self.duplicates: list[str] = []
        self.nodes: list[Node] = []
        self.poison: Collection[str] = ()
        """Items that fail wherever they run."""
        self.changes = 0
        self._rate_free_at = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen."""
        self._sequence += 1
        heapq.heappush(self._events, (seconds, self._sequence, event))

    def run(self, until: float = float("inf")) -> None:
        """Let everything happen that is due before `until`; an agent that ends leaves the rest."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def start(
        self, index: int, count: int, *, workers: int = 2, speed: float = 1.0, skew: float = 0.0
    ) -> None:
        """Start an agent now."""
        self.at(
            self.now + self.costs.start_seconds,
            lambda: self._begin(index, count, workers, speed, skew),
        )

    def kill(self, index: int) -> None:
        """End the agents at a place without a word."""
        for node in self.nodes:
            if place_of(node.agent) == f"{index:05d}" and not node.ended:
                node.ended = "killed"

    def freeze(self, index: int, seconds: float) -> None:
        """Stop the agents at a place, as SIGSTOP does, and let them go on later."""
        for node in self.nodes:
            if place_of(node.agent) == f"{index:05d}":
                node.frozen_until = self.now + seconds

    def wait_for_rate(self, delay: float, requests: int) -> float:
        """Seconds until the store takes so many more requests."""
        self.changes += requests
        if not self.costs.max_rate:
            return 0.0
        begin = max(self._rate_free_at, self.now + delay)
        self._rate_free_at = begin + requests / self.costs.max_rate
        return begin - self.now - delay

    @property
    def living(self) -> list[Node]:
        return [node for node in self.nodes if not node.ended]

    def _begin(self, index: int, count: int, workers: int, speed: float, skew: float) -> None:
        share = AgentShare(index, count)
        agent = f"{share.place}-{len(self.nodes):08x}"
        store = DelayedStore(self)
        beat = AgentState(agent=agent, counter=0)
        store.replace(state_name(agent), canonical_json(beat))
        claims = Claims(
            store,
            agent,
            self.items,
            lambda: self.now + skew,
            share=share,
            look_seconds=BEAT_SECONDS,
        )
        claims.refresh(self.done)
        node = Node(agent, claims, store, workers, speed)
        self.nodes.append(node)
        self.at(self.now + BEAT_SECONDS, lambda: self._beat(node))
        self.at(self.now, lambda: self._turn(node))

    def _thawed(self, node: Node, event: Callable[[], None]) -> bool:
        if node.frozen_until > self.now:
            self.at(node.frozen_until, event)
            return False
        return not node.ended

    def _beat(self, node: Node) -> None:
        if not self._thawed(node, lambda: self._beat(node)):
            return
        node.counter += 1
        self._say(node)
        self.at(self.now + BEAT_SECONDS, lambda: self._beat(node))

    def _say(self, node: Node) -> None:
        state = AgentState(agent=node.agent, counter=node.counter, left=node.ended)
        self.changes += 1
        self.store.replace(state_name(node.agent), canonical_json(state))

    def _turn(self, node: Node) -> None:
        """One turn of the main loop: claim for every free worker; ask how the rest is doing."""
        if not self._thawed(node, lambda: self._turn(node)):
            return
        if node.busy_until > self.now + 1e-9:
            self.at(node.busy_until, lambda: self._turn(node))
            return
        node.store.delay = 0.0
        while node.room and (item := node.claims.take()):
            self._start_unit(node, item)
        if node.room and not node.claims.exhausted:
            self._refresh(node)
        node.busy_until = self.now + node.store.delay
        if node.claims.exhausted and not node.running:
            node.ended = "nothing to do" if node.claims.waiting_for else "complete"
            self._say(node)

    def _refresh(self, node: Node) -> None:
        if self.now < node.next_refresh:
            return
        node.claims.refresh(self.done)
        node.next_refresh = self.now + node.store.delay + self.costs.refresh_seconds
        self.at(self.now + node.store.delay, lambda: self._turn(node))
        self.at(node.next_refresh, lambda: self._turn(node))

    def _start_unit(self, node: Node, item: str) -> None:
        node.running.add(item)
        self.runs[item] += 1
        seconds = self.costs.unit_seconds(item) * node.speed
        self.at(self.now + node.store.delay + seconds, lambda: self._encoded(node, item))

    def _encoded(self, node: Node, item: str) -> None:
        if not self._thawed(node, lambda: self._encoded(node, item)):
            return
        wait = self.wait_for_rate(0.0, self.costs.requests_of_unit + 1)
        self.at(self.now + wait + 3 * self.costs.latency, lambda: self._finished(node, item))

    def _finished(self, node: Node, item: str) -> None:
        if not self._thawed(node, lambda: self._finished(node, item)):
            return
        node.running.discard(item)
        if item in self.poison:
            node.claims.failed(item, EngineError("a poison item", where=item))
        else:
            if item in self.done:
                self.duplicates.append(item)
            self.done.setdefault(item, self.now)
            node.claims.finished(item)
        self._turn(node)


def items_named(number: int) -> list[str]:
    """Names of items in the order of execution."""
    return [f"{index:08d}-000000" for index in range(number)]


def lognormal_seconds(mean: float, sigma: float, seed: int) -> Callable[[str], float]:
    """Durations of units by name: the same for every agent and run."""
    correction = mean / (2.718281828 ** (sigma * sigma / 2))

    def seconds(item: str) -> float:
        return correction * random.Random(f"{seed}/{item}").lognormvariate(0, sigma)

    return seconds

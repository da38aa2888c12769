"""Claims decide which agent runs which item.

Claims are only hints: a wrong claim costs time, but cannot change the dataset. An agent claims an
item by creating `work/claims/ITEM.G`. G counts how often the item changed hands.

An agent first takes every n-th item, so that all agents begin with large items and advance through
the inputs together. Then it lists all claims, and takes unclaimed items in random order. Last, it
takes over items of agents that are gone.
"""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import EngineError, TokenmillError
from tokenmill.run.journal.agents import (
    LEAST_BEAT_SECONDS,
    HeartBeat,
    Watch,
    is_agent,
    new_agent,
    states,
)
from tokenmill.run.launch import AgentShare
from tokenmill.store.canonical import canonical_json
from tokenmill.store.manifest import Attempt
from tokenmill.store.objects.object_store import ObjectStore

CLAIMS = "work/claims"
FAILED = "work/failed"
"""Errors of items that failed on an agent: `work/failed/ITEM.AGENT.json`."""
NUM_WAITING = 4
"""Agents that wait until everything is done. The others leave when nothing is left to claim."""
MAX_FAILURES = 2
ALL_ITEMS = "all"
"""The item name of a failure that ends the whole build."""
MAX_LOSSES = 8
"""Claims lost to other agents, after which listing the claims is cheaper than trying."""
MAX_ASKED = 256
"""The most claims whose owners are read at once."""


class _Claim(msgspec.Struct, frozen=True):
    agent: str


@dataclass(slots=True)
class _Held:
    """An item that another agent probably holds."""

    generation: int
    owner: str = ""


class Claims:
    """An agent's view of which items are free, held or done.

    `items` are in the order of execution, large ones first, and the same for all agents. With
    `alone`, all other agents are known to have ended. After creating this object, list the finished
    items in the store, and pass them to `refresh`.
    """

    def __init__(
        self,
        store: ObjectStore,
        agent: str,
        items: Sequence[str],
        clock: Callable[[], float],
        *,
        share: AgentShare | None = None,
        look_seconds: float = LEAST_BEAT_SECONDS,
        alone: bool = False,
    ) -> None:
        self._store, self._agent, self._items = store, agent, items
        self._content = canonical_json(_Claim(agent))
        self._random = random.Random(agent)  # noqa: S311 - an order, not a secret
        self._watch = Watch(store, agent, clock, look_seconds=look_seconds, alone=alone)
        self._is_one_of_many = share is not None
        if share is None and not self._watch.others:
            share = AgentShare(0, 1)
        self._next = deque(items[share.index :: share.count] if share else ())
        """The items to try next: first this agent's share, later items listed as unclaimed."""
        self._losses = 0
        self._must_list = share is None or share.count > 1
        self._gone_items: deque[str] = deque()
        self._held: dict[str, _Held] = {}
        self.mine: set[str] = set()
        """The items that this agent holds."""
        self._ended: set[str] = set()
        """Items that this agent has finished or failed on."""
        self._failed: dict[str, TokenmillError] = {}
        self._done: Collection[str] = frozenset()
        self.parked: dict[str, TokenmillError] = {}
        """Items that no agent will try again, with the error of one agent."""
        self._may_leave = False

    @property
    def look_seconds(self) -> float:
        """The time between looks at other agents."""
        return self._watch.look_seconds

    @property
    def alone(self) -> bool:
        """Whether no other agent is known to be running."""
        return not self._watch.others

    @property
    def waiting_for(self) -> list[str]:
        """Unfinished items that other agents hold, as of the last `refresh`.

        The list is complete once `take` has returned None and `refresh` was called.
        """
        return [*self._held, *(item for item in self._failed if item not in self.parked)]

    @property
    def exhausted(self) -> bool:
        """Whether this agent has nothing to claim, now or later.

        Either all items are done or parked, or enough other agents wait for the rest.
        """
        return self.idle and (self._may_leave or not self.waiting_for)

    @property
    def idle(self) -> bool:
        """Whether this agent has nothing to claim at the moment."""
        return not (self._may_find or self._gone_items)

    def take(self, accept: Callable[[str], bool] = lambda item: True) -> str | None:
        """Claim an item that `accept` approves, or return None if there is none at the moment.

        Raises:
            StorageError: the store fails.
        """
        self._watch.look()
        while self._may_find or self._gone_items:
            if not self._next and self._must_list:
                self._list()
                continue
            is_new = bool(self._next)
            item = _popped(self._next if is_new else self._gone_items, accept)
            if item is None:
                return None
            if not (self._is_free(item) if is_new else item in self._held):
                continue
            if self._claim(item):
                return item
            if is_new:
                self._losses += 1
                if self._losses >= MAX_LOSSES:
                    self._next.clear()
                    self._must_list = True
        return None

    def finished(self, item: str) -> None:
        """Record that this agent has finished an item and stored its receipts."""
        self.mine.discard(item)
        self._ended.add(item)
        self._failed.pop(item, None)

    def failed(self, item: str, error: TokenmillError) -> None:
        """Store that an item failed on this agent, and leave it to other agents.

        Raises:
            StorageError: the store fails.
        """
        note_failure(self._store, item, self._agent, error)
        self.mine.discard(item)
        self._ended.add(item)
        self._failed[item] = error

    def stop(self, error: TokenmillError) -> None:
        """Stop all agents of the build, because a wrong result puts all results in doubt.

        Raises:
            StorageError: the store fails.
        """
        note_failure(self._store, ALL_ITEMS, self._agent, error)

    def refresh(self, done: Collection[str]) -> None:
        """Take note of finished items and of agents that are gone, and decide whether to wait.

        `done` are finished items from the store. It must include the finished items of
        `waiting_for`, and may omit others.

        Raises:
            StorageError: the store fails.
            TokenmillError: another agent has stopped the build.
        """
        failures = self._failures()
        self._done = done
        for known in (self._held, self._failed):
            for item in [item for item in known if item in done]:
                known.pop(item)
        if self._may_find:
            return
        self._ask_owners()
        self._park(failures)
        self._find_gone(failures)
        self._watch.owners.update(held.owner for held in self._held.values() if held.owner)
        self._watch.look()
        first = [name for name in self._watch.living if name < self._agent]
        self._may_leave = self._is_one_of_many and len(first) >= NUM_WAITING

    def heed_others(self) -> None:
        """Raise the error of another agent that has stopped the build, if any."""
        self._failures()

    def _failures(self) -> dict[str, set[str]]:
        """Return the agents that each item failed on, except agents that are past."""
        failures = failed_agents(self._store, self._watch.is_past)
        if stopped := failures.pop(ALL_ITEMS, None):
            raise noted_failure(self._store, ALL_ITEMS, min(stopped))
        return failures

    @property
    def _may_find(self) -> bool:
        """Whether there may be unclaimed items."""
        return bool(self._next or self._must_list)

    def _is_free(self, item: str) -> bool:
        ours = item in self.mine or item in self._ended
        known = item in self._held or item in self._done or item in self.parked
        return not ours and not known

    def _claim(self, item: str) -> bool:
        """Try to claim an item. Overrides claims of agents that ended before this one started."""
        held = self._held.get(item)
        generation = held.generation + 1 if held else 0
        while True:
            name = claim_name(item, generation)
            data = self._store.create(name, self._content, durable=False)
            if data == self._content:
                self._held.pop(item, None)
                self.mine.add(item)
                return True
            owner = _owner(data)
            self._held[item] = _Held(generation, owner)
            if not self._watch.is_past(owner):
                return False
            generation += 1

    def _list(self) -> None:
        """List all claims to find unclaimed items. An outdated listing only costs time."""
        generations: dict[str, int] = {}
        for name in self._store.sizes(CLAIMS):
            item, _, generation = name.rpartition("/")[2].rpartition(".")
            if generation.isdecimal():
                generations[item] = max(generations.get(item, 0), int(generation))
        free = [item for item in self._items if self._is_free(item)]
        for item in free:
            if item in generations:
                self._held[item] = _Held(generations[item])
        self._next = deque(item for item in free if item not in generations)
        self._random.shuffle(self._next)
        self._must_list, self._losses = False, 0

    def _ask_owners(self) -> None:
        unknown = (item for item, held in self._held.items() if not held.owner)
        chosen = itertools.islice(unknown, MAX_ASKED)
        names = {claim_name(item, self._held[item].generation): item for item in chosen}
        for name, data in self._store.read_all(names):
            self._held[names[name]].owner = _owner(data or b"")

    def _park(self, failures: dict[str, set[str]]) -> None:
        """Park items that failed on two agents, or here without other agents left."""
        for item, agents in failures.items():
            if item in self._done or item in self.parked:
                continue
            if len(agents) < MAX_FAILURES and (item not in self._failed or self._watch.others):
                continue
            error = self._failed.get(item) or noted_failure(self._store, item, min(agents))
            self.parked[item] = error
            self._held.pop(item, None)

    def _find_gone(self, failures: dict[str, set[str]]) -> None:
        """Find items of agents that are gone. Items that often changed hands come last.

        They may be what kills their agents.
        """
        gone = [
            item
            for item, held in self._held.items()
            if held.owner
            and (self._watch.is_gone(held.owner) or held.owner in failures.get(item, ()))
        ]
        self._random.shuffle(gone)
        gone.sort(key=lambda item: self._held[item].generation)
        self._gone_items = deque(dict.fromkeys([*self._gone_items, *gone]))


def claim_name(item: str, generation: int) -> str:
    """Return the name of a claim; `generation` counts how often the item changed hands."""
    return f"{CLAIMS}/{item}.{generation}"


def note_failure(store: ObjectStore, item: str, agent: str, error: TokenmillError) -> None:
    """Store that an item failed on an agent, for the other agents."""
    record = canonical_json(ErrorRecord.of(error))
    store.create(f"{FAILED}/{item}.{agent}.json", record, durable=False)


def failed_agents(store: ObjectStore, is_past: Callable[[str], bool]) -> dict[str, set[str]]:
    """Return the agents that each item failed on, except agents that are past."""
    found: dict[str, set[str]] = {}
    for path in store.sizes(FAILED):
        name = path.rpartition("/")[2].removesuffix(".json")
        item, _, agent = name.partition(".")
        if is_agent(agent) and not is_past(agent):
            found.setdefault(item, set()).add(agent)
    return found


def noted_failure(store: ObjectStore, item: str, agent: str) -> TokenmillError:
    """Return the error of an item that failed on an agent."""
    try:
        data = store.read(f"{FAILED}/{item}.{agent}.json") or b""
        return msgspec.json.decode(data, type=ErrorRecord).rebuild()
    except (ValueError, RecursionError):
        return EngineError(f"{item} failed on the agent {agent}", why="its error is unreadable")


def _popped(items: deque[str], accept: Callable[[str], bool]) -> str | None:
    """Remove and return the first item that `accept` approves. None if there is none."""
    for index, item in enumerate(items):
        if accept(item):
            del items[index]
            return item
    return None


def _owner(data: bytes) -> str:
    try:
        return msgspec.json.decode(data, type=_Claim).agent
    except (ValueError, RecursionError):
        return "?"  # unreadable: no agent has this name, so its items can be taken over


@contextmanager
def present(
    store: ObjectStore,
    items: Sequence[str],
    attempt: Attempt,
    versions: dict[str, str],
    *,
    share: AgentShare | None,
    beat_seconds: float,
    alone: bool,
) -> Iterator[tuple[Claims, HeartBeat]]:
    """Register this process as an agent until the block ends.

    `beat_seconds` is the time between its beats, and between its looks at other agents. Set
    `alone` if this process is the only one that holds the lock of the output.
    """
    agent = new_agent(share)
    beat = HeartBeat(store, agent, attempt, versions, beat_seconds=beat_seconds, alone=alone)
    alone = alone and all(state.host == socket.gethostname() for state in states(store))
    claims = Claims(
        store, agent, items, time.monotonic, share=share, look_seconds=beat_seconds, alone=alone
    )
    beat.begin()
    try:
        yield claims, beat
    except BaseException as error:
        beat.end(error.what if isinstance(error, TokenmillError) else type(error).__name__)
        raise
    beat.end("done")

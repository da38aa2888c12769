"""Who runs which item: claims are hints, so a mistake costs time and never bytes.

`work/claims/ITEM.G` is created by the agent that takes an item; G counts how often it changed
hands. An agent first takes the items dealt to it (every n-th one, so that all agents begin with the
large ones and stay abreast in the order of the inputs), then, after one listing, those of others
that nobody has claimed, in an order of its own, and at last those whose agent has gone.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from tokenmill.errors import TokenmillError
from tokenmill.run.agents.agent import Agent
from tokenmill.run.agents.failures import failed_agents, note_failure, noted_failure
from tokenmill.run.agents.shard import Shard
from tokenmill.run.agents.watch import Watch
from tokenmill.store.canonical import canonical_json
from tokenmill.store.objects.object_store import ObjectStore

FOLDER = "work/claims"
NUM_WAITING = 4
"""Agents that stay until everything is done; all others leave when there is nothing to take."""
MAX_FAILURES = 2
MIN_PATIENCE = 8
CLAIMS_A_LOSS = 250
"""Listing so many claims takes about as long as one claim that another agent had already."""
MAX_ASKED = 256
"""Claims whose owners are looked up at a time."""


class _Claim(msgspec.Struct, frozen=True):
    agent: str


@dataclass(slots=True)
class _Held:
    """An item that another agent claimed, as far as we know."""

    generation: int
    owner: str


class Claims:
    """The items of a build, as one agent sees them.

    `items` are in the order of execution, large ones first, and the same for all agents. With
    `alone` every other agent is known to have ended. What was done before must be asked of the
    store after this was made, and passed to `refresh`.
    """

    def __init__(
        self,
        store: ObjectStore,
        agent: Agent,
        items: Sequence[str],
        clock: Callable[[], float],
        *,
        shard: Shard | None = None,
        alone: bool = False,
    ) -> None:
        self._store, self._agent, self._items = store, agent, items
        self._content = canonical_json(_Claim(agent.name))
        self._random = random.Random(agent.name)  # noqa: S311 - an order, not a secret
        self._watch = Watch(store, agent, clock, alone=alone)
        self._is_one_of_many = shard is not None
        if shard is None and not self._watch.others:
            shard = Shard(0, 1)
        self._next = deque(items[shard.index :: shard.count] if shard else ())
        """What to try, in this order: the items dealt to us, later those listed as unclaimed."""
        self._must_list = shard is None or shard.count > 1
        self._losses, self._patience = 0, MIN_PATIENCE
        self._has_swept = not self._must_list
        self._gone_items: deque[str] = deque()
        self._held: dict[str, _Held] = {}
        self._generations: dict[str, int] = {}
        """Of items that changed hands, from the last listing."""
        self._mine: set[str] = set()
        self._ended: set[str] = set()
        """Items that we finished, or failed on."""
        self._failed: dict[str, TokenmillError] = {}
        self._done: Collection[str] = frozenset()
        self._parked: dict[str, TokenmillError] = {}
        self._may_leave = False

    @property
    def alone(self) -> bool:
        """Whether no other agent is known to be at work."""
        return not self._watch.others

    @property
    def mine(self) -> frozenset[str]:
        """The items that this agent holds."""
        return frozenset(self._mine)

    @property
    def waiting_for(self) -> list[str]:
        """Items that others hold, and that were not done when last looked: ask the store for these.

        Complete once `take` has returned None and `refresh` was called.
        """
        return [*self._held, *(item for item in self._failed if item not in self._parked)]

    @property
    def parked(self) -> dict[str, TokenmillError]:
        """Items that nobody is to try again, with the error of one agent."""
        return dict(self._parked)

    @property
    def exhausted(self) -> bool:
        """Whether this agent has nothing more to take, now or later.

        Either all other items are done or parked, or enough agents are left to wait for them.
        """
        if self._next or self._must_list or self._gone_items or not self._has_swept:
            return False
        return self._may_leave or not self.waiting_for

    @property
    def complete(self) -> bool:
        """Whether every item is done or parked."""
        return self.exhausted and not self.waiting_for and not self._mine

    def take(self, accept: Callable[[str], bool] = lambda item: True) -> str | None:
        """Claim an item: it is ours from now on; None if there is none to take at the moment.

        Only one that is wanted at the moment: `accept` says so.

        Raises:
            StorageError: the store fails.
        """
        self._watch.look()
        while True:
            if self._next:
                item = _popped(self._next, accept)
                if item is None:
                    return None
                if self._is_free(item):
                    if self._claim(item):
                        return item
                    self._count_loss()
            elif self._must_list:
                self._list_unclaimed()
            elif self._gone_items:
                item = _popped(self._gone_items, accept)
                if item is None:
                    return None
                if item in self._held and self._claim(item):
                    return item
            else:
                return None

    def upcoming(self, num_items: int) -> list[str]:
        """What this agent tries next, unless others were faster: to read ahead."""
        return [*itertools.islice(self._next, num_items)]

    def finished(self, item: str) -> None:
        """An item of ours is done, and the store knows."""
        self._mine.discard(item)
        self._ended.add(item)
        self._failed.pop(item, None)

    def failed(self, item: str, error: TokenmillError) -> None:
        """An item of ours failed in a way that another agent may not: note it, and let it go.

        Raises:
            StorageError: the store fails.
        """
        note_failure(self._store, item, self._agent.name, error)
        self._mine.discard(item)
        self._ended.add(item)
        self._failed[item] = error

    def refresh(self, done: Collection[str]) -> None:
        """Learn which items are done; find those whose agents have gone, and whether to wait.

        `done` is what the store says now; it may hold only some of the items done, among them those
        of `waiting_for`.

        Raises:
            StorageError: the store fails.
        """
        self._done = done
        for item in [item for item in self._held if item in done]:
            del self._held[item]
        for item in [item for item in self._failed if item in done]:
            del self._failed[item]
        if self._next or self._must_list:
            return
        self._sweep()
        self._ask_owners()
        failures = failed_agents(self._store, self._watch.is_past)
        self._park(failures)
        self._find_gone(failures)
        self._watch.look(held.owner for held in self._held.values() if held.owner)
        first = [name for name in self._watch.living if name < self._agent.name]
        self._may_leave = self._is_one_of_many and len(first) >= NUM_WAITING

    def _is_free(self, item: str) -> bool:
        known = item in self._mine or item in self._ended or item in self._held
        return not known and item not in self._done

    def _claim(self, item: str) -> bool:
        """Whether an item is ours now; claims of those that ended before us do not count."""
        held = self._held.get(item)
        generation = held.generation + 1 if held else self._generations.get(item, 0)
        while True:
            name = claim_name(item, generation)
            data = self._store.create(name, self._content, durable=False)
            if data == self._content:
                self._held.pop(item, None)
                self._mine.add(item)
                return True
            owner = _owner(data)
            self._held[item] = _Held(generation, owner)
            if not self._watch.is_past(owner):
                return False
            generation += 1

    def _count_loss(self) -> None:
        """Others are ahead of us: soon a listing is cheaper than to try item by item."""
        self._losses += 1
        if self._losses >= self._patience:
            self._must_list, self._has_swept = True, False
            self._next.clear()

    def _list_unclaimed(self) -> None:
        """Find what nobody has claimed; a listing that is late costs time, as claims decide."""
        claimed: dict[str, int] = {}
        for entry in self._store.entries(FOLDER):
            item, _, generation = entry.name.rpartition("/")[2].rpartition(".")
            if generation.isdecimal() and len(generation) < 10:
                claimed[item] = max(claimed.get(item, 0), int(generation))
        self._generations = {item: number for item, number in claimed.items() if number}
        free = [item for item in self._items if item not in claimed and self._is_free(item)]
        self._random.shuffle(free)
        self._next = deque(free)
        self._must_list, self._losses = False, 0
        self._patience = max(MIN_PATIENCE, len(claimed) // CLAIMS_A_LOSS)

    def _sweep(self) -> None:
        """Once: everything that is not done and not ours is held by somebody."""
        if self._has_swept:
            return
        self._has_swept = True
        for item in self._items:
            if self._is_free(item):
                self._held[item] = _Held(self._generations.get(item, 0), "")
        self._generations = {}

    def _ask_owners(self) -> None:
        unknown = [item for item, held in self._held.items() if not held.owner]
        chosen = self._random.sample(unknown, min(len(unknown), MAX_ASKED))
        names = {claim_name(item, self._held[item].generation): item for item in chosen}
        for name, data in self._store.read_all(names):
            held = self._held[names[name]]
            if data is None:  # nobody's after all: take the same generation
                held.generation -= 1
                self._gone_items.append(names[name])
            else:
                held.owner = _owner(data)

    def _park(self, failures: dict[str, set[str]]) -> None:
        """An item that failed on two agents, or on us when nobody else is left, fails the build."""
        for item, agents in failures.items():
            if item in self._done or item in self._parked:
                continue
            if len(agents) < MAX_FAILURES and (item not in self._failed or self._watch.others):
                continue
            error = self._failed.get(item) or noted_failure(self._store, item, min(agents))
            self._parked[item] = error
            self._held.pop(item, None)

    def _find_gone(self, failures: dict[str, set[str]]) -> None:
        """Items that changed hands often are tried last: they may be what ends their agents."""
        gone = [
            item
            for item, held in self._held.items()
            if held.owner
            and (self._watch.is_gone(held.owner) or held.owner in failures.get(item, ()))
        ]
        self._random.shuffle(gone)
        gone.sort(key=lambda item: self._held[item].generation)
        self._gone_items = deque(dict.fromkeys([*self._gone_items, *gone]))


def _popped(items: deque[str], accept: Callable[[str], bool]) -> str | None:
    """The first item that is wanted, removed; None if there is none."""
    for index, item in enumerate(items):
        if accept(item):
            del items[index]
            return item
    return None


def claim_name(item: str, generation: int) -> str:
    """The name of the object that says who has an item, after it changed hands so many times."""
    return f"{FOLDER}/{item}.{generation}"


def _owner(data: bytes) -> str:
    try:
        return msgspec.json.decode(data, type=_Claim).agent
    except (ValueError, RecursionError):
        return "?"  # whoever wrote that will never be heard of

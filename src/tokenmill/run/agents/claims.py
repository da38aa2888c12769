"""Claims decide which agent runs which item.

Claims are only hints: a wrong claim costs time, but cannot change the dataset. An agent claims an
item by creating `work/claims/N/ITEM.G`. G counts how often the item changed hands. Folder N holds
the claims of 1,000 items, which is one page of a bucket's listing.

An agent first takes every n-th item, so that all agents begin with large items and advance through
the inputs together. Then it takes unclaimed items, folder by folder in random order. Last, it takes
over items of agents that are gone.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from tokenmill.core.errors import TokenmillError
from tokenmill.run.agents.agent import Agent
from tokenmill.run.agents.failures import failed_agents, note_failure, noted_failure
from tokenmill.run.agents.shard import Shard
from tokenmill.run.agents.watch import Watch
from tokenmill.store.canonical import canonical_json
from tokenmill.store.objects.object_store import ObjectStore

FOLDER = "work/claims"
NUM_WAITING = 4
"""Agents that wait until everything is done. The others leave when nothing is left to claim."""
MAX_FAILURES = 2
ALL_ITEMS = "all"
"""The item name of a failure that ends the whole build."""
ITEMS_A_FOLDER = 1000
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
    owner: str


class Claims:
    """An agent's view of which items are free, held or done.

    `items` are in the order of execution, large ones first, and the same for all agents. With
    `alone`, all other agents are known to have ended. After creating this object, list the finished
    items in the store, and pass them to `refresh`.
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
        everything = range(len(items))
        self._next = deque(everything[shard.index :: shard.count] if shard else ())
        """The items to try next: first this agent's share, later items listed as unclaimed."""
        self._folders: deque[int] = deque()
        """Folders of claims that have not been listed yet."""
        self._losses, self._has_listed = 0, False
        self._must_list = self._must_sweep = shard is None or shard.count > 1
        self._gone_items: deque[int] = deque()
        self._held: dict[int, _Held] = {}
        self._mine: set[str] = set()
        self._ended: set[str] = set()
        """Items that this agent has finished or failed on."""
        self._failed: dict[str, TokenmillError] = {}
        self._done: Collection[str] = frozenset()
        self._parked: dict[str, TokenmillError] = {}
        self._may_leave = False

    @property
    def alone(self) -> bool:
        """Whether no other agent is known to be running."""
        return not self._watch.others

    @property
    def mine(self) -> frozenset[str]:
        """The items that this agent holds."""
        return frozenset(self._mine)

    @property
    def waiting_for(self) -> list[str]:
        """Unfinished items that other agents hold, as of the last `refresh`.

        The list is complete once `take` has returned None and `refresh` was called.
        """
        held = (self._items[number] for number in self._held)
        return [*held, *(item for item in self._failed if item not in self._parked)]

    @property
    def parked(self) -> dict[str, TokenmillError]:
        """Items that no agent will try again, with the error of one agent."""
        return dict(self._parked)

    @property
    def exhausted(self) -> bool:
        """Whether this agent has nothing to claim, now or later.

        Either all items are done or parked, or enough other agents wait for the rest.
        """
        return self.idle and (self._may_leave or not self.waiting_for)

    @property
    def idle(self) -> bool:
        """Whether this agent has nothing to claim at the moment."""
        return not (self._may_find or self._gone_items or self._must_sweep)

    @property
    def complete(self) -> bool:
        """Whether every item is done or parked."""
        return self.exhausted and not self.waiting_for and not self._mine

    def take(self, accept: Callable[[str], bool] = lambda item: True) -> str | None:
        """Claim an item that `accept` approves, or return None if there is none at the moment.

        Raises:
            StorageError: the store fails.
        """
        self._watch.look()
        while self._may_find or self._gone_items:
            if not self._next and self._may_find:
                self._list_folder()
                continue
            is_new = bool(self._next)
            number = self._popped(self._next if is_new else self._gone_items, accept)
            if number is None:
                return None
            if not (self._is_free(number) if is_new else number in self._held):
                continue
            if self._claim(number):
                return self._items[number]
            if is_new:
                self._count_loss(number)
        return None

    def upcoming(self, num_items: int) -> list[str]:
        """Return the items that this agent will probably claim next, for reading ahead."""
        return [self._items[number] for number in itertools.islice(self._next, num_items)]

    def finished(self, item: str) -> None:
        """Record that this agent has finished an item and stored its receipts."""
        self._mine.discard(item)
        self._ended.add(item)
        self._failed.pop(item, None)

    def failed(self, item: str, error: TokenmillError) -> None:
        """Store that an item failed on this agent, and leave it to other agents.

        Raises:
            StorageError: the store fails.
        """
        note_failure(self._store, item, self._agent.name, error)
        self._mine.discard(item)
        self._ended.add(item)
        self._failed[item] = error

    def stop(self, error: TokenmillError) -> None:
        """Stop all agents of the build, because a wrong result puts all results in doubt.

        Raises:
            StorageError: the store fails.
        """
        note_failure(self._store, ALL_ITEMS, self._agent.name, error)

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
        for number in [number for number in self._held if self._items[number] in done]:
            del self._held[number]
        for item in [item for item in self._failed if item in done]:
            del self._failed[item]
        if self._may_find:
            return
        self._sweep()
        self._ask_owners()
        self._park(failures)
        self._find_gone(failures)
        self._watch.asked = {held.owner for held in self._held.values() if held.owner}
        self._watch.look()
        first = [name for name in self._watch.living if name < self._agent.name]
        self._may_leave = self._is_one_of_many and len(first) >= NUM_WAITING

    def heed_others(self) -> None:
        """Raise the error of another agent that has stopped the build, if any."""
        self._failures()

    def _failures(self) -> dict[str, set[str]]:
        """Return the agents that each item failed on."""
        failures = failed_agents(self._store, self._watch.is_past)
        if stopped := failures.pop(ALL_ITEMS, None):
            raise noted_failure(self._store, ALL_ITEMS, min(stopped))
        return failures

    @property
    def _may_find(self) -> bool:
        """Whether there may be unclaimed items."""
        return bool(self._next or self._folders or self._must_list)

    def _popped(self, numbers: deque[int], accept: Callable[[str], bool]) -> int | None:
        """Remove and return the first item that `accept` approves. None if there is none."""
        for index, number in enumerate(numbers):
            if accept(self._items[number]):
                del numbers[index]
                return number
        return None

    def _is_free(self, number: int) -> bool:
        item = self._items[number]
        ours = item in self._mine or item in self._ended
        return not ours and number not in self._held and item not in self._done

    def _claim(self, number: int) -> bool:
        """Try to claim an item. Overrides claims of agents that ended before this one started."""
        held = self._held.get(number)
        generation = held.generation + 1 if held else 0
        while True:
            name = claim_name(number, self._items[number], generation)
            data = self._store.create(name, self._content, durable=False)
            if data == self._content:
                self._held.pop(number, None)
                self._mine.add(self._items[number])
                return True
            owner = _owner(data)
            self._held[number] = _Held(generation, owner)
            if not self._watch.is_past(owner):
                return False
            generation += 1

    def _count_loss(self, number: int) -> None:
        """Count a claim lost to another agent. After several, list the claims of others."""
        self._losses += 1
        if self._losses < MAX_LOSSES:
            return
        self._next.clear()
        if self._has_listed:
            self._folders.appendleft(number // ITEMS_A_FOLDER)
        else:
            self._must_list = self._must_sweep = True

    def _list_folder(self) -> None:
        """List a folder of claims to find unclaimed items. An outdated listing only costs time."""
        if self._must_list:
            self._must_list, self._has_listed = False, True
            self._folders = deque(range(-(-len(self._items) // ITEMS_A_FOLDER)))
            self._random.shuffle(self._folders)
        if not self._folders:
            return
        first = self._folders.popleft() * ITEMS_A_FOLDER
        claimed = {
            entry.name.rpartition("/")[2].rpartition(".")[0]
            for entry in self._store.entries(claims_folder(first))
        }
        numbers = range(first, min(first + ITEMS_A_FOLDER, len(self._items)))
        free = [n for n in numbers if self._is_free(n) and self._items[n] not in claimed]
        self._random.shuffle(free)
        self._next = deque(free)
        self._losses = 0

    def _sweep(self) -> None:
        """Once all claims are listed, regard all other unfinished items as held."""
        if self._must_sweep:
            self._must_sweep = False
            for number in range(len(self._items)):
                if self._is_free(number):
                    self._held[number] = _Held(0, "")

    def _ask_owners(self) -> None:
        unknown = [number for number, held in self._held.items() if not held.owner]
        chosen = self._random.sample(unknown, min(len(unknown), MAX_ASKED))
        names = {
            claim_name(number, self._items[number], self._held[number].generation): number
            for number in chosen
        }
        for name, data in self._store.read_all(names):
            held = self._held[names[name]]
            if data is None:  # unclaimed after all: claim the same generation
                held.generation -= 1
                self._gone_items.append(names[name])
            else:
                held.owner = _owner(data)

    def _park(self, failures: dict[str, set[str]]) -> None:
        """Park items that failed on two agents, or here without other agents left."""
        for item, agents in failures.items():
            if item in self._done or item in self._parked:
                continue
            if len(agents) < MAX_FAILURES and (item not in self._failed or self._watch.others):
                continue
            error = self._failed.get(item) or noted_failure(self._store, item, min(agents))
            self._parked[item] = error

    def _find_gone(self, failures: dict[str, set[str]]) -> None:
        """Find items of agents that are gone. Items that often changed hands come last.

        They may be what kills their agents.
        """
        for number in [n for n in self._held if self._items[n] in self._parked]:
            del self._held[number]
        gone = [
            number
            for number, held in self._held.items()
            if held.owner
            and (
                self._watch.is_gone(held.owner)
                or held.owner in failures.get(self._items[number], ())
            )
        ]
        self._random.shuffle(gone)
        gone.sort(key=lambda number: self._held[number].generation)
        self._gone_items = deque(dict.fromkeys([*self._gone_items, *gone]))


def claim_name(number: int, item: str, generation: int) -> str:
    """Return the name of a claim; `generation` counts how often the item changed hands.

    `number` is the position of the item in the order of execution.
    """
    return f"{claims_folder(number)}/{item}.{generation}"


def claims_folder(number: int) -> str:
    """Return the folder of an item's claims, by its position in the order of execution."""
    return f"{FOLDER}/{number // ITEMS_A_FOLDER}"


def claim_folders(store: ObjectStore) -> Iterator[str]:
    """Yield the folders that hold claims."""
    for number in itertools.count(step=ITEMS_A_FOLDER):
        folder = claims_folder(number)
        if next(iter(store.entries(folder)), None) is None:
            return
        yield folder


def _owner(data: bytes) -> str:
    try:
        return msgspec.json.decode(data, type=_Claim).agent
    except (ValueError, RecursionError):
        return "?"  # unreadable: no agent has this name, so its items can be taken over

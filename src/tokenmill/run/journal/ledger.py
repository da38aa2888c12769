"""The finished work of a run: receipts, ends of streams, damaged sources, and the engine.

Units run in any order, but limits on documents and tokens apply in the order of the inputs. So the
unit that reaches a limit is found afterwards, and is the same for any number of workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tokenmill.core.errors import InputChangedError, TokenmillError
from tokenmill.read.units import Stream, Unit, unit_key
from tokenmill.run.identity import shown, version_differences
from tokenmill.run.job import NO_LIMIT, Limit
from tokenmill.run.journal.receipts import (
    finished_keys,
    read_by_source,
    read_receipts,
    without_lost_files,
)
from tokenmill.run.messages import Receipt
from tokenmill.store.objects.object_store import ObjectStore, create_record, open_record

ENGINE_NAME = "work/engine.json"
DAMAGED = "work/damaged"
STREAMS = "work/streams"
LIMITED = "-limit"
"""The suffix of the key of a unit that ran again up to a limit."""


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The engine of all receipts, and the versions of the libraries that affect them."""

    engine: str
    versions: dict[str, str]
    digest: str = ""


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The number of units of a stream that was read to its end."""

    num_parts: int
    digest: str = ""


class _Damage(msgspec.Struct, frozen=True, kw_only=True):
    why: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Reused:
    """Units that a resumed build did not run again."""

    units: int
    bytes: int
    """Decompressed bytes of records."""
    seconds: float
    """The time they took, divided by the number of workers of this attempt."""


@dataclass(slots=True)
class Ledger:
    """The finished work of all agents of a run, in the order of the inputs."""

    store: ObjectStore
    items: Sequence[Unit | Stream]
    limit: Limit = NO_LIMIT
    """The limit of the whole run."""
    versions_for: Callable[[str], dict[str, str]] = lambda engine: {}
    """Returns the versions of the libraries that affect the output of an engine."""
    receipts: dict[str, Receipt] = field(default_factory=dict)
    """Receipts that this process has read or written."""
    finished: set[str] = field(default_factory=set)
    """Units that are known to have a receipt."""
    ends: dict[int, int] = field(default_factory=dict)
    """The number of parts of each finished stream, by source."""
    quarantined: dict[int, str] = field(default_factory=dict)
    """Why damaged sources were left out, by index."""
    engine: str = ""
    """The engine of all receipts. "" before the first receipt."""
    _keys: list[str] = field(init=False)
    """Finished units in the order of the inputs, up to the first unfinished one or the limit."""
    _item: Unit | Stream | None = field(init=False)
    """The item of the next unit."""
    _others: Iterator[Unit | Stream] = field(init=False)
    """The items after that one."""
    _num_parts: int = field(init=False)
    """How many units of that item are finished."""
    _left: Limit = field(init=False)
    """What the other units may still write."""
    _crossing: tuple[str, Limit] | None = field(init=False)

    def __post_init__(self) -> None:
        if data := self.store.read(ENGINE_NAME):
            self.engine = open_record(self.store, ENGINE_NAME, data, EngineRecord).engine
        self._restart()
        self.refresh()

    def refresh(self) -> None:
        """Read what other agents have finished."""
        self._learn_damage_and_ends()
        if self.limit != NO_LIMIT:
            self.receipts |= read_receipts(self.store, self.receipts)
            self.finished |= self.receipts.keys()
        else:
            self.finished |= finished_keys(self.store)

    def read_all(self) -> None:
        """Read the receipts of all units. Units with lost files will run again."""
        self._learn_damage_and_ends()
        known = {**self.receipts, **read_receipts(self.store, self.receipts)}
        self.receipts = without_lost_files(self.store, known)
        self.finished = set(self.receipts)
        self._restart()

    def reused(self, num_workers: int) -> Reused | None:
        """Return the work that earlier attempts save this one. None if there is none."""
        receipts = self.receipts.values()
        if not receipts:
            return None
        return Reused(
            units=len(receipts),
            bytes=sum(c.record_bytes for receipt in receipts for c in receipt.counts.values()),
            seconds=sum(receipt.seconds or 0.0 for receipt in receipts) / num_workers,
        )

    def agree_on_engine(self, engine: str) -> None:
        """Store the engine of all receipts before the first one, or compare with the stored one.

        Raises:
            InputChangedError: other agents use another engine or other versions.
        """
        if self.engine == engine:
            return
        mine = EngineRecord(engine=engine, versions=self.versions_for(engine))
        first = create_record(self.store, ENGINE_NAME, mine)
        lines = [] if first.engine == engine else [f"engine: theirs {first.engine}, here {engine}"]
        changed = version_differences(first.versions, mine.versions, mine.versions)
        lines += [f"{name}: theirs is version {old}, here {new}" for name, old, new in changed]
        if lines:
            raise InputChangedError(
                "another agent of this build uses another engine or other library versions",
                where=self.store.location,
                why=shown(lines),
                hint="install the same versions on all machines",
            )
        self.engine = engine

    def count(self, receipt: Receipt) -> None:
        """Record a receipt that is in the store."""
        self.receipts[receipt.key] = receipt
        self.finished.add(receipt.key)

    def end_stream(self, source: int, num_parts: int) -> None:
        """Store the number of parts of a stream that was read to its end."""
        name = f"{STREAMS}/{source:08d}.json"
        self.ends[source] = create_record(
            self.store, name, StreamEnd(num_parts=num_parts)
        ).num_parts

    def quarantine(self, damaged: Mapping[int, TokenmillError]) -> None:
        """Exclude damaged sources from the run."""
        for source, error in damaged.items():
            name = f"{DAMAGED}/{source:08d}.json"
            damage = _Damage(why=f"{error.what}: {error.why}")
            self.quarantined[source] = create_record(self.store, name, damage).why
        self._restart()

    def sound_items(self) -> list[Unit | Stream]:
        """Return the units and streams that are not quarantined as a whole."""
        return [item for item in self.items if not self._is_quarantined(item)]

    def is_finished(self, item: Unit | Stream) -> bool:
        """Whether all units of an item have receipts, or the item is quarantined."""
        if self._is_quarantined(item):
            return True
        if isinstance(item, Stream) and item.source not in self.ends:
            return False
        return all(key in self.finished for key in unit_keys(item, self.ends))

    def is_complete(self) -> bool:
        """Whether all units are done and only publishing is left."""
        if crossing := self.crossing:
            return crossing[0] + LIMITED in self.finished
        return self._item is None

    @property
    def crossing(self) -> tuple[str, Limit] | None:
        """The unit that reaches the limit, and what it may still write."""
        while self._item is not None and self._crossing is None:
            for key in itertools.islice(unit_keys(self._item, self.ends), self._num_parts, None):
                if key not in self.finished:
                    return None
                self._num_parts += 1
                self._keys.append(key)
                if self.limit != NO_LIMIT and self._reaches_limit(self.receipts[key]):
                    return self._crossing
            self._item, self._num_parts = next(self._others, None), 0
        return self._crossing

    def final_receipts(self) -> list[Receipt]:
        """Return the receipts of the dataset: all in order, up to a limit."""
        crossing, keys = self.crossing, list(self._keys)
        if crossing:
            keys[-1] += LIMITED
        return [self.receipts[key] for key in keys]

    def _restart(self) -> None:
        """Go through the items from the start, because others are finished or quarantined."""
        self._others = iter(self.sound_items())
        self._item = next(self._others, None)
        self._keys, self._num_parts = [], 0
        self._left, self._crossing = self.limit, None

    def _reaches_limit(self, receipt: Receipt) -> bool:
        left = self._left
        over_documents = left.documents is not None and receipt.documents >= left.documents
        over_tokens = left.tokens is not None and receipt.tokens >= left.tokens
        if over_documents or over_tokens:
            self._crossing = receipt.key, left
        self._left = Limit(
            documents=None if left.documents is None else left.documents - receipt.documents,
            tokens=None if left.tokens is None else left.tokens - receipt.tokens,
        )
        return self._crossing is not None

    def _is_quarantined(self, item: Unit | Stream) -> bool:
        sources = [item.source] if isinstance(item, Stream) else [e.source for e in item.extents]
        return all(source in self.quarantined for source in sources)

    def _learn_damage_and_ends(self) -> None:
        if damaged := read_by_source(self.store, DAMAGED, _Damage, self.quarantined):
            self.quarantined |= {source: found.why for source, found in damaged.items()}
            self._restart()
        ends = read_by_source(self.store, STREAMS, StreamEnd, self.ends)
        self.ends |= {source: end.num_parts for source, end in ends.items()}


def unit_keys(item: Unit | Stream, ends: Mapping[int, int]) -> Iterator[str]:
    """Yield the unit keys of an item. For a stream without a known end, yield keys forever."""
    if isinstance(item, Unit):
        yield item.key
        return
    part = 0
    while part < ends.get(item.source, part + 1):
        yield unit_key(item.source, part)
        part += 1

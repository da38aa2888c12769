"""The finished work of a run: receipts, ends of streams, damaged sources, and the engine.

Units run in any order, but limits on documents and tokens apply in the order of the inputs. So the
unit that reaches a limit is found afterwards, and is the same for any number of workers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tokenmill.core.errors import InputChangedError, TokenmillError
from tokenmill.read.units import Stream, Unit, unit_key
from tokenmill.run.identity import shown, version_differences
from tokenmill.run.job import NO_LIMIT, Limit
from tokenmill.run.journal.receipts import (
    finished_keys,
    read_receipts,
    read_stream_ends,
    without_lost_files,
    write_stream_end,
)
from tokenmill.run.messages import Receipt
from tokenmill.store.objects.object_store import ObjectStore, create_record, open_record

ENGINE_NAME = "work/engine.json"
DAMAGED = "work/damaged"
LIMITED = "-limit"
"""The suffix of the key of a unit that ran again up to a limit."""
_DAMAGED = re.compile(DAMAGED + r"/\d{8}\.json")


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The engine of all receipts, and the versions of the libraries that affect them."""

    engine: str
    versions: dict[str, str]
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
    _prefix: Prefix = field(init=False)

    def __post_init__(self) -> None:
        if data := self.store.read(ENGINE_NAME):
            self.engine = open_record(self.store, ENGINE_NAME, data, EngineRecord).engine
        self._prefix = Prefix(self.items, self.limit)
        self.refresh()

    def refresh(self) -> None:
        """Read what other agents have finished."""
        self._learn_damage()
        self.ends |= read_stream_ends(self.store, self.ends)
        if self.limit != NO_LIMIT:
            self.receipts |= read_receipts(self.store, self.receipts)
            self.finished |= self.receipts.keys()
        else:
            self.finished |= finished_keys(self.store)

    def read_all(self) -> None:
        """Read the receipts of all units. Units with lost files will run again."""
        self._learn_damage()
        self.ends |= read_stream_ends(self.store, self.ends)
        known = {**self.receipts, **read_receipts(self.store, self.receipts)}
        self.receipts = without_lost_files(self.store, known)
        self._prefix = Prefix(self.sound_items(), self.limit)  # others may have found damage
        self.finished = set(self.receipts)

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
        if self.engine != engine:
            self._agree_on_engine(engine)

    def count(self, receipt: Receipt) -> None:
        """Record a receipt that is in the store."""
        self.receipts[receipt.key] = receipt
        self.finished.add(receipt.key)

    def end_stream(self, source: int, num_parts: int) -> None:
        """Store the number of parts of a stream that was read to its end."""
        write_stream_end(self.store, source, num_parts)
        self.ends[source] = num_parts

    def quarantine(self, damaged: Mapping[int, TokenmillError]) -> None:
        """Exclude damaged sources from the run."""
        for source, error in damaged.items():
            name = f"{DAMAGED}/{source:08d}.json"
            damage = _Damage(why=f"{error.what}: {error.why}")
            self.quarantined[source] = create_record(self.store, name, damage).why
        self._prefix = Prefix(self.sound_items(), self.limit)

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
        self._advance()
        if self._prefix.crossing:
            return self._prefix.crossing[0] + LIMITED in self.finished
        return self._prefix.is_complete

    @property
    def crossing(self) -> tuple[str, Limit] | None:
        """The unit that reaches the limit, and what it may still write."""
        self._advance()
        return self._prefix.crossing

    def final_receipts(self) -> list[Receipt]:
        """Return the receipts of the dataset: all in order, up to a limit."""
        self._advance()
        keys = list(self._prefix.keys)
        if self._prefix.crossing:
            keys[-1] += LIMITED
        return [self.receipts[key] for key in keys]

    def _advance(self) -> None:
        self._prefix.advance(self.finished, self.receipts, self.ends)

    def _agree_on_engine(self, engine: str) -> None:
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

    def _is_quarantined(self, item: Unit | Stream) -> bool:
        sources = [item.source] if isinstance(item, Stream) else [e.source for e in item.extents]
        return all(source in self.quarantined for source in sources)

    def _learn_damage(self) -> None:
        names = self.store.sizes(DAMAGED)
        found = {int(name[-13:-5]): name for name in names if _DAMAGED.fullmatch(name)}
        new = {name: source for source, name in found.items() if source not in self.quarantined}
        for name, data in self.store.read_all(new):
            self.quarantined[new[name]] = open_record(self.store, name, data, _Damage).why
        if new:
            self._prefix = Prefix(self.sound_items(), self.limit)


def unit_keys(item: Unit | Stream, ends: Mapping[int, int]) -> Iterator[str]:
    """Yield the unit keys of an item. For a stream without a known end, yield keys forever."""
    if isinstance(item, Unit):
        yield item.key
        return
    part = 0
    while part < ends.get(item.source, part + 1):
        yield unit_key(item.source, part)
        part += 1


class Prefix:
    """Finished units in the order of the inputs, up to the first unfinished one or the limit."""

    def __init__(self, items: Sequence[Unit | Stream], limit: Limit) -> None:
        self._limit = limit
        self._items = iter(items)
        self._item: Unit | Stream | None = next(self._items, None)
        self._documents = self._tokens = self._num_parts = 0
        self.keys: list[str] = []
        self.crossing: tuple[str, Limit] | None = None
        """The unit that reaches the limit, and what it may still write."""

    @property
    def is_complete(self) -> bool:
        """Whether all units are finished, or the limit is reached."""
        return self._item is None or self.crossing is not None

    def advance(
        self, finished: Container[str], receipts: Mapping[str, Receipt], ends: Mapping[int, int]
    ) -> None:
        """Extend the prefix by `finished` units. With a limit, their `receipts` are needed.

        `ends` holds the number of parts of finished streams.
        """
        while self._item is not None and self.crossing is None:
            for key in itertools.islice(unit_keys(self._item, ends), self._num_parts, None):
                if key not in finished:
                    return
                self._num_parts += 1
                self.keys.append(key)
                if self._limit != NO_LIMIT and self._add(receipts[key]):
                    return
            self._item, self._num_parts = next(self._items, None), 0

    def _add(self, receipt: Receipt) -> bool:
        """Count a unit. True if it reaches the limit."""
        limit = Limit(
            documents=_rest(self._limit.documents, self._documents),
            tokens=_rest(self._limit.tokens, self._tokens),
        )
        self._documents += receipt.documents
        self._tokens += receipt.tokens
        over_documents = limit.documents is not None and receipt.documents >= limit.documents
        over_tokens = limit.tokens is not None and receipt.tokens >= limit.tokens
        if over_documents or over_tokens:
            self.crossing = (receipt.key, limit)
        return self.crossing is not None


def _rest(limit: int | None, used: int) -> int | None:
    return None if limit is None else limit - used

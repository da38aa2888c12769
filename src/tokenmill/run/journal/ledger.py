"""The finished work of a run: receipts, ends of streams, damaged sources, and the engine.

Units run in any order, but limits on documents and tokens apply in the order of the inputs. So the
unit that reaches a limit is found afterwards, and is the same for any number of workers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from tokenmill.core.errors import DataError, InputChangedError, InternalError, TokenmillError
from tokenmill.read.units import Stream, Unit, unit_key
from tokenmill.run.executor import RECEIPTS, Receipt, receipt_name
from tokenmill.run.job import NO_LIMIT, Limit, shown, version_differences
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.files import unfinished_beside
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import Counts
from tokenmill.store.objects.object_store import ObjectStore, create_record, open_record
from tokenmill.store.objects.opening import open_store

_KEY = re.compile(r"(\d{8}-\d{6}(-limit)?)\.json")
_SOURCE = re.compile(r"(\d{8})\.json")

T = TypeVar("T", bound=msgspec.Struct)


def write_receipt(store: ObjectStore, receipt: Receipt) -> Receipt:
    """Store a receipt, which completes its unit. Returns the stored receipt.

    Raises:
        InternalError: another agent has run the unit with a different result.
    """
    name = receipt_name(receipt.key)
    first = create_record(store, name, receipt)
    if not first.is_like(receipt):
        raise InternalError(
            "a unit that ran twice gave two different results",
            where=f"unit {receipt.key}",
            why=f"the second result differs from the receipt {store.location}/{name}",
            hint="compare the tokenizers, libraries and memory of the machines",
        )
    return first


def read_receipts(store: ObjectStore, known: Collection[str] = ()) -> dict[str, Receipt]:
    """Return the receipts of all units by key, except those that are `known`."""
    return _read(store, RECEIPTS, finished_keys(store).difference(known), Receipt)


def finished_keys(store: ObjectStore) -> set[str]:
    """Return the keys of all units with a receipt."""
    return _listed(store, RECEIPTS, _KEY)


def read_by_source(
    store: ObjectStore, folder: str, kind: type[T], known: Collection[int]
) -> dict[int, T]:
    """Return the records of a folder, one for a source, by its index, except `known` ones."""
    keys = {key for key in _listed(store, folder, _SOURCE) if int(key) not in known}
    return {int(key): record for key, record in _read(store, folder, keys, kind).items()}


def _listed(store: ObjectStore, folder: str, pattern: re.Pattern[str]) -> set[str]:
    found = (pattern.fullmatch(name.removeprefix(f"{folder}/")) for name in store.sizes(folder))
    return {match[1] for match in found if match}


def _read(store: ObjectStore, folder: str, keys: Iterable[str], kind: type[T]) -> dict[str, T]:
    names = {f"{folder}/{key}.json": key for key in keys}
    return {
        names[name]: open_record(store, name, data, kind)
        for name, data in store.read_all(names)
        if data is not None
    }


def without_lost_files(store: ObjectStore, receipts: Mapping[str, Receipt]) -> dict[str, Receipt]:
    """Return receipts with complete files. Removes the others, so that their units run again."""
    wanted = {
        part_name(key, file.name): file.bytes
        for key, receipt in receipts.items()
        for file in receipt.files
    }
    folders = {name.rpartition("/")[0] for name in wanted}
    sizes: dict[str, int] = {}
    for folder in folders:
        sizes |= store.sizes(folder)
    missing = {name for name, num_bytes in wanted.items() if sizes.get(name) != num_bytes}
    missing = {name for name in missing if store.size(name) != wanted[name]}  # listings may be late
    lost = {
        key
        for key, receipt in receipts.items()
        if any(part_name(key, file.name) in missing for file in receipt.files)
    }
    store.remove(map(receipt_name, sorted(lost)))
    return {key: receipt for key, receipt in receipts.items() if key not in lost}


def num_finished_units(out: str | Path) -> int:
    """Return the number of units that a resumed build will not run again."""
    places = [out] if is_remote(out) else [out, unfinished_beside(Path(out).resolve()) / "new"]
    return sum(len(finished_keys(open_store(str(place)))) for place in places)


def judge_rejected(
    totals: Counts, max_bad: float, store: ObjectStore, files: Sequence[str]
) -> None:
    """Raise a DataError if more records were rejected than the recipe allows.

    `files` are the names of the files with rejected records, in the order of the inputs.
    """
    if totals.num_rejected <= max_bad * max(totals.records, 1):
        return
    share = totals.num_rejected / max(totals.records, 1)
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in totals.rejected.items())
    data = store.read(files[0]) or b""
    first = msgspec.json.decode(data[: data.index(b"\n")])
    hint = f"look at {store.location}/rejected/*.jsonl"
    if totals.num_rejected == totals.records:
        hint += "; every record is bad, so check --text-field or --chat, and --format if given"
    else:
        allowed = _just_above(share)
        hint += f", then run the same command with --max-bad {allowed}: nothing is encoded again"
    raise DataError(
        f"{totals.num_rejected:,} of {totals.records:,} records are bad ({share:.4%})",
        where=f"the first is {first['source']}, position {first['position']:,}: "
        + ", ".join(filter(None, (first["reason"], first["detail"]))),
        why=f"{reasons}; the limit is {max_bad:.4%}",
        hint=hint,
    )


def _just_above(share: float) -> str:
    """Return a percentage slightly above a share, and below 100%."""
    allowed = min(share * 1.01, (1 + share) / 2)
    shown = (f"{allowed:.{digits}%}" for digits in range(4, 17))
    return next(each for each in shown if share <= float(each[:-1]) / 100 < 1)


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

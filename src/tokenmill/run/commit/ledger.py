"""What of a run is done: receipts, and what attempts have found out; stored as it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tokenmill.errors import TokenmillError
from tokenmill.read.units import Stream, Unit, unit_key
from tokenmill.run.commit.identity import AnyState, store_state
from tokenmill.run.commit.limits import crossing, receipts_in_order
from tokenmill.run.commit.receipts import read_receipts, read_stream_ends, write_receipt
from tokenmill.run.commit.workspace import Workspace
from tokenmill.run.units.assignment import NO_LIMIT, Limit, Receipt
from tokenmill.store.manifest import Attempt


@dataclass(frozen=True, slots=True)
class Reused:
    """Units that a resumed build did not run again."""

    units: int
    bytes: int
    """Record bytes, decompressed."""
    seconds: float
    """What they took their workers, divided by the workers of this attempt."""


@dataclass(slots=True)
class Ledger:
    """The receipts of a run, in the order of its inputs."""

    workspace: Workspace
    state: AnyState
    items: Sequence[Unit | Stream]
    limit: Limit
    """Of the whole run."""
    receipts: dict[str, Receipt] = field(init=False)

    def __post_init__(self) -> None:
        self.receipts = read_receipts(self.workspace.receipts, self.workspace.shards)

    def begin(self, attempt: Attempt) -> Reused | None:
        """Remember an attempt; returns what earlier ones spare it, None if nothing."""
        self.state.attempts.append(attempt)
        store_state(self.workspace, self.state)
        receipts = self.receipts.values()
        if not receipts:
            return None
        return Reused(
            units=len(receipts),
            bytes=sum(c.record_bytes for receipt in receipts for c in receipt.counts.values()),
            seconds=sum(receipt.seconds or 0.0 for receipt in receipts) / attempt.workers,
        )

    def record(self, receipt: Receipt, engine: str) -> None:
        """Store the receipt of a unit; before the first one, the engine of them all."""
        if self.state.calibrated_engine != engine:
            self.state.calibrated_engine = engine
            store_state(self.workspace, self.state)
        write_receipt(self.workspace.receipts, receipt)
        self.receipts[receipt.key] = receipt

    def quarantine(self, damaged: Mapping[int, TokenmillError]) -> None:
        """Leave damaged sources out."""
        for source, error in damaged.items():
            self.state.quarantined[source] = f"{error.what}: {error.why}"
        store_state(self.workspace, self.state)

    def count_recycled(self) -> None:
        """Count a worker that was replaced because its memory had grown."""
        attempt = self.state.attempts[-1]
        attempt.recycled_workers = (attempt.recycled_workers or 0) + 1
        store_state(self.workspace, self.state)

    def sound_items(self) -> list[Unit | Stream]:
        """Units and streams that are not quarantined as a whole."""
        return [item for item in self.items if not self._is_quarantined(item)]

    def _is_quarantined(self, item: Unit | Stream) -> bool:
        sources = [item.source] if isinstance(item, Stream) else [e.source for e in item.extents]
        return all(source in self.state.quarantined for source in sources)

    def finished_streams(self, wanted: Callable[[str], bool]) -> frozenset[int]:
        """Streams that have been read to their end, and of which no unit is `wanted`."""
        return frozenset(
            source
            for source, parts in read_stream_ends(self.workspace.receipts).items()
            if not any(wanted(unit_key(source, part)) for part in range(parts))
        )

    def crossing(self) -> tuple[str, Limit] | None:
        """The unit in which a limit is reached, and what it may still write."""
        return None if self.limit == NO_LIMIT else crossing(self.limit, self._in_order())

    def final_receipts(self) -> list[Receipt]:
        """What the dataset is made of: all receipts in order, up to a limit."""
        receipts = self._in_order()
        if crossed := self.crossing():
            keys = [receipt.key for receipt in receipts]
            receipts = receipts[: keys.index(crossed[0]) + 1]
        return receipts

    def _in_order(self) -> list[Receipt]:
        """Receipts up to the first unit that has none."""
        ends = read_stream_ends(self.workspace.receipts)
        return receipts_in_order(self.sound_items(), self.receipts, ends)

"""Measure the time to commit a dataset of many units, and the work of an agent among many.

    python bench/commit.py --units 112000

Receipts are invented and in memory, so only tokenmill's own work counts: reading and checking them,
comparing the sizes of all files, adding up the counts, and making the manifest. The latency of a
bucket comes on top: with 30 ms and 128 concurrent requests, 1,500 receipts per second.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "run"))

from memory_store import MemoryStore

from tokenmill.read.formats.format import Extent
from tokenmill.read.source import Source
from tokenmill.read.units import Unit, unit_key
from tokenmill.run.executor import Receipt, receipt_name
from tokenmill.run.journal.agents import new_agent
from tokenmill.run.journal.claims import Claims
from tokenmill.run.journal.ledger import Ledger
from tokenmill.run.publish import describe_sources
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import Counts, ExtentEntry, FileEntry, ShardEntry

SIZES = {"bin": 537_000_000, "idx": 2_700_000, "xxh3": 66_000, "parquet": 3_000_000}
UNITS_A_SOURCE = 2
R = TypeVar("R")


class StoreOfReceipts(MemoryStore):
    """Receipts in memory, and listings of the files that they name."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__()
        self._keys = keys
        self.requests.clear()
        for key in keys:
            self._put(receipt_name(key), receipt_of(key))

    def sizes(self, folder: str) -> dict[str, int]:
        sizes = super().sizes(folder)
        for part, num_bytes in SIZES.items():
            if part_name("x", part).rpartition("/")[0] == folder:
                sizes |= {part_name(key, part): num_bytes for key in self._keys}
        return sizes


def receipt_of(key: str) -> bytes:
    """The receipt of a unit of 512 MiB of one source."""
    source, digest = str(int(key[:8])), key.replace("-", "0").ljust(32, "0")
    return canonical_json(
        sealed(
            Receipt(
                key=key,
                extents=[ExtentEntry(source=int(source), start=0, stop=512 << 20)],
                files=[FileEntry(name=n, bytes=b, xxh3_128=digest) for n, b in SIZES.items()],
                documents=134_000,
                tokens=134_217_728,
                counts={
                    source: Counts(
                        records=134_000,
                        record_bytes=512 << 20,
                        documents=134_000,
                        document_bytes=512 << 20,
                        tokens=134_217_728,
                    )
                },
                read_digests={source: digest},
                audited=100,
                excluded=[],
                seconds=9.1,
            )
        )
    )


def main() -> None:
    """Make receipts, then commit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=112_000)
    num_units = parser.parse_args().units
    keys = [unit_key(n // UNITS_A_SOURCE, n % UNITS_A_SOURCE) for n in range(num_units)]
    units = [Unit(key, (Extent(int(key[:8])),), 512 << 20) for key in keys]
    store = StoreOfReceipts(keys)
    before = peak_mb()
    print(f"{num_units:,} units; the receipts and the interpreter have {before:,.0f} MB")
    ledger = measured("an agent learns what is done", lambda: Ledger(store, units), before)
    claims = Claims(store, new_agent(None), keys, time.monotonic)
    done = measured(
        "an agent asks of every item",
        lambda: {unit.key for unit in units if ledger.is_finished(unit)},
        before,
    )
    measured("an agent takes what is left", lambda: (claims.refresh(done), claims.take()), before)
    measured("commit: read receipts, compare sizes", ledger.read_all, before)
    receipts = measured("commit: put them in order", ledger.final_receipts, before)
    sources = [source_of(index) for index in range(-(-num_units // UNITS_A_SOURCE))]
    measured("commit: books", lambda: describe_sources(sources, receipts, {}), before)
    measured("commit: shards as JSON", lambda: canonical_json(shards_of(receipts)), before)


def measured(what: str, action: Callable[[], R], before: float) -> R:
    """Say what an action took."""
    begun = time.process_time()
    result = action()
    spent = time.process_time() - begun
    print(f"{what:<40} {spent:>7.2f} CPU s  peak {peak_mb() - before:>6,.0f} MB more", flush=True)
    return result


def shards_of(receipts: list[Receipt]) -> list[ShardEntry]:
    """As they are in a manifest."""
    return [
        ShardEntry(documents=r.documents, tokens=r.tokens, extents=r.extents, files=r.files)
        for r in receipts
    ]


def source_of(index: int) -> Source:
    """An input file."""
    size = UNITS_A_SOURCE * (512 << 20)
    name = f"part-{index:08d}.jsonl"
    return Source(
        index=index,
        name=name,
        place="local",
        location=name,
        version=0,
        num_bytes=size,
        format="jsonl",
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

"""Inputs read again: is their content still what an earlier attempt has read?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from tokenmill.errors import DataError
from tokenmill.read.documents import Reader, SpooledPart
from tokenmill.read.feed import feed_stream
from tokenmill.read.fields import Fields
from tokenmill.read.sources import Source
from tokenmill.read.units import Extent, Stream, cut_units
from tokenmill.run.units.assignment import Receipt
from tokenmill.store.manifest import SourceEntry

BATCH_BYTES = 1 << 20
CHANGED = "its content changed"
LIMITED = "its content cannot be compared, because the build stopped at a limit"


@dataclass(frozen=True, slots=True)
class Contents:
    """Reads sources as a build does, for their digests alone."""

    sources: Sequence[Source]
    fields: Fields
    unit_bytes: int
    announce: Callable[[Source], None]
    """Called before a source is read."""

    def change_since_receipts(self, index: int, receipts: Mapping[str, Receipt]) -> str:
        """How a source differs from what finished units have read of it, "" if it does not."""
        stored = {
            (extent.start, extent.stop): "" if receipt.limited else digest
            for receipt in receipts.values()
            for extent in receipt.extents
            if extent.source == index and (digest := receipt.read_digests.get(str(index)))
        }
        if not stored:
            return ""
        if "" in stored.values():
            return LIMITED
        try:
            found = {(extent.start, extent.stop): d for extent, d in self._digests(index)}
        except DataError as error:
            return f"its content changed ({error.why})"
        same = stored == {place: found.get(place) for place in stored}
        return "" if same else CHANGED

    def change_since_manifest(self, index: int, entry: SourceEntry) -> str:
        """How a source differs from what a dataset was built from, "" if it does not."""
        try:
            digests = b"".join(bytes.fromhex(digest) for _, digest in self._digests(index))
        except DataError as error:
            return f"its content changed ({error.why})"
        return "" if xxhash.xxh3_128_hexdigest(digests) == entry.xxh3_128 else CHANGED

    def _digests(self, index: int) -> Iterator[tuple[Extent, str]]:
        """Yield every part of a source and the digest of what is read of it, "" of nothing."""
        source = self.sources[index]
        self.announce(source)
        for item in cut_units([source], self.fields, self.unit_bytes):
            if not isinstance(item, Stream):
                yield from ((extent, self._digest(extent)) for extent in item.extents)
                continue
            with tempfile.TemporaryDirectory() as folder:
                parts = feed_stream(item, source, self.fields, Path(folder), lambda key: True)
                for unit, part in parts:
                    yield unit.extents[0], self._digest(unit.extents[0], part)
                    if part:
                        part.path.unlink()

    def _digest(self, extent: Extent, part: SpooledPart | None = None) -> str:
        hashers: list[xxhash.xxh3_128] = []

        def observe(_: int, data: bytes | memoryview) -> None:
            if not hashers:
                hashers.append(xxhash.xxh3_128())
            hashers[0].update(data)

        reader = Reader(self.sources, self.fields, BATCH_BYTES)
        reader.observe = observe
        for _ in reader.read(extent, part):
            pass
        return hashers[0].hexdigest() if hashers else ""

"""Read inputs again to check whether their content has changed since an earlier attempt."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from tokenmill.core.errors import DataError
from tokenmill.read.documents import ReadDigests, Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent, SpooledPart
from tokenmill.read.source import Source
from tokenmill.read.units import Stream, cut_units, feed_stream
from tokenmill.run.messages import Receipt

BATCH_BYTES = 1 << 20
CHANGED = "its content changed"
STOPPED_AT_LIMIT = "its content cannot be compared, because the build stopped at a limit"
LEFT_OUT = "its content cannot be compared, because it was left out as damaged"

Part = tuple[int, int | None]
"""The [start, stop) of an extent."""
Digests = tuple[str, str]
"""The digests of the bytes and of the rows of a part. "" if there are none."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Computes the digests of sources by reading them as a build does."""

    sources: Sequence[Source]
    fields: Fields
    unit_bytes: int

    def change_since_receipts(self, index: int, receipts: Mapping[str, Receipt]) -> str:
        """Return how a source differs from what finished units read of it, or ""."""
        stored: dict[Part, Digests] = {}
        for receipt in receipts.values():
            for extent in receipt.extents:
                if extent.source == index:
                    if receipt.limited:
                        continue
                    read = receipt.read_digests.get(str(index), "")
                    rows = (receipt.row_digests or {}).get(str(index), "")
                    stored[extent.start, extent.stop] = read, rows
        if not stored:
            return ""
        return self._change(
            index, lambda found: {part: found.get(part) for part in stored} == stored
        )

    def change_since_build(self, index: int, read: str, rows: str) -> str:
        """Return how a source differs from the one that a dataset was built from, or "".

        `read` is the digest of the byte digests of all parts, `rows` of their row digests.
        """

        def is_same(found: Mapping[Part, Digests]) -> bool:
            of_bytes, of_rows = (_joined(part[kind] for part in found.values()) for kind in (0, 1))
            return of_bytes == read and of_rows == (rows or _joined([]))

        return self._change(index, is_same)

    def _change(self, index: int, is_same: Callable[[Mapping[Part, Digests]], bool]) -> str:
        try:
            found = {(extent.start, extent.stop): each for extent, each in self._digests(index)}
        except DataError as error:
            return f"its content changed ({error.why})"
        return "" if is_same(found) else CHANGED

    def _digests(self, index: int) -> Iterator[tuple[Extent, Digests]]:
        """Yield every part of a source and its digests."""
        source = self.sources[index]
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

    def _digest(self, extent: Extent, part: SpooledPart | None = None) -> Digests:
        digests = ReadDigests(self.sources, self.fields)
        reader = Reader(self.sources, self.fields, BATCH_BYTES)
        reader.observe = digests.observe
        for batch in reader.read(extent, part):
            digests.add_rows(batch)
        index = str(extent.source)
        return digests.of_bytes().get(index, ""), digests.of_rows().get(index, "")


def _joined(digests: Iterable[str]) -> str:
    """Return the digest of digests."""
    return xxhash.xxh3_128_hexdigest(b"".join(map(bytes.fromhex, digests)))

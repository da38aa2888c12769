"""What a format is: how documents are written in a file, and how such a file is read in parts.

To add a format, write one module with a class that has the members of `Format`, and register it in
the packaging metadata:

    [project.entry-points."tokenmill.formats"]
    warc = "my_package.warc:Warc"

`ByteFormat` has most of them for records that follow each other in the bytes of a file,
`TableFormat` (in `tables/format.py`) for tables that Arrow reads, in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, cast

from tokenmill.read.blocks import iter_blocks, overlaps_itself
from tokenmill.read.compression import decompressed
from tokenmill.read.places.range_file import BLOCK_BYTES, Range, RangeFile
from tokenmill.read.registry import Registry

if TYPE_CHECKING:
    from tokenmill.read.documents import SpooledPart
    from tokenmill.read.fields import Fields
    from tokenmill.read.sources import Source
    from tokenmill.read.units import Extent
    from tokenmill.records import DocumentBatch

WRITE_BYTES = 16 << 20  # Linux takes few large writes up to three times faster


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole records of a source, read and not yet parsed."""

    start: int
    """Where they begin in the source: a byte of the decompressed file, or a row."""
    stop: int
    num_bytes: int
    """What they take in the decompressed file."""
    content: Any
    """Bytes, or what else the parser of the format takes."""


class Part(NamedTuple):
    """A part of a source that can be read by itself."""

    start: int
    stop: int | None
    """None: to the end."""
    num_bytes: int
    """Its share of the bytes on disk."""
    first_row: int | None = None
    """Of tables: the number of its first row, if that is known."""


Parse = Callable[[Block, "Source"], "DocumentBatch"]
"""Turns the records of a block into documents and rejections; one that cannot be used costs itself
alone.
"""


class SpoolWriter(Protocol):
    """A spool file that is being written."""

    def write(self, content: Any, /) -> object:
        """Append the content of a block."""

    def close(self) -> object:
        """Finish the file."""


class Format(Protocol):
    """How documents are written in a file.

    Methods that read a source raise a DataError if it is damaged, and an OSError if it cannot be
    read. What a source becomes may depend on its bytes and the fields alone.
    """

    holds_records: bool
    """Whether documents are fields of records. The inputs of a build must agree in this."""
    compressible: bool
    """Whether files may be compressed as a whole."""
    range_suffixes: tuple[str, ...]
    """Names of files that are read in parts where they are, without reading all; () if none can."""

    libraries: tuple[str, ...]
    """Packages other than this one whose versions decide what is read."""

    digests_texts_only: bool
    """Whether `digested` gives the texts without their ends, and no other field."""

    def sniff(self, head: bytes, name: Path) -> bool:
        """Whether a file is of this format.

        `head` is what the decompressed file begins with; `name` has no suffix of a compression.
        """

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        """The fields in the first records of a source; empty if they are not known by name.

        Raises:
            UserError: the text is not among them, or (by a schema) another field is not.
        """

    def reads_whole(self, fields: Fields) -> bool:
        """Whether a file is one document."""

    def totals(self, source: Source, fields: Fields) -> tuple[int, int] | None:
        """About how many bytes of text a source holds, and how many records; None if that is not
        known without reading them.
        """

    def num_starts(self, source: Source, fields: Fields) -> int:
        """At how many places an extent may start: bytes, row groups; 1 if at its beginning only."""

    def cut(self, source: Source, fields: Fields, unit_bytes: int) -> Sequence[Part] | None:
        """Parts of about `unit_bytes` decompressed bytes, in order and with nothing between them.

        None: the source can only be read from its start. Called for sources of `unit_bytes` and
        more.
        """

    def blocks(
        self,
        source: Source,
        extent: Extent,
        fields: Fields,
        block_bytes: int,
        raw: BinaryIO | None = None,
    ) -> Iterator[Block]:
        """The records that begin in an extent, in blocks of about `block_bytes`.

        `raw` is the opened file, for a caller that wants to know how far it was read.
        """

    def parser(self, fields: Fields) -> Parse:
        """What parses blocks."""

    def digested(self, block: Block, fields: Fields) -> bytes | memoryview:
        """The bytes of a block that go into the digest of its source."""

    def open_spool(self, path: Path | str, block: Block) -> SpoolWriter:
        """A new spool file, for blocks like this one."""

    def spooled_blocks(
        self, spool: SpooledPart, source: Source, fields: Fields, block_bytes: int
    ) -> Iterator[Block]:
        """The records in a spool file."""


FORMATS: Registry[Format] = Registry(
    "tokenmill.formats",
    "format",
    {
        "parquet": "tokenmill.read.formats.parquet:Parquet",
        "arrow-file": "tokenmill.read.formats.arrow:ArrowFile",
        "arrow-stream": "tokenmill.read.formats.arrow:ArrowStream",
        "wet": "tokenmill.read.formats.wet:Wet",
        "json-array": "tokenmill.read.formats.json_array:JsonArray",
        "jsonl": "tokenmill.read.formats.jsonl:JsonLines",
        "csv": "tokenmill.read.formats.delimited:Csv",
        "tsv": "tokenmill.read.formats.delimited:Tsv",
        "text": "tokenmill.read.formats.text:Text",
    },
    Format,
)


class ByteFormat:
    """What formats have in common whose records follow each other in the bytes of a file.

    As it is, such a file is read from its start; `delimiter` makes any place a start.
    """

    holds_records = True
    compressible = True
    range_suffixes: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    digests_texts_only = False

    def delimiter(self, fields: Fields) -> bytes:
        """What ends every record; b"" if nothing does."""
        return b""

    def split(
        self, stream: BinaryIO, start: int, stop: int | None, fields: Fields, block_bytes: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, block) for the records that begin in [start, stop) of `stream`.

        Without a delimiter, start is 0 and stop is None.
        """
        delimiter = self.delimiter(fields)
        if start:
            stream.seek(max(start - len(delimiter), 0))
        return iter_blocks(stream, start, stop, delimiter, block_bytes)

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        return set()

    def reads_whole(self, fields: Fields) -> bool:
        return False

    def totals(self, source: Source, fields: Fields) -> tuple[int, int] | None:
        """None: only who has read all records knows how many there are."""
        return None

    def num_starts(self, source: Source, fields: Fields) -> int:
        """Every byte, if records are found from any place."""
        return source.num_bytes if self._starts_anywhere(source, fields) else 1

    def cut(self, source: Source, fields: Fields, unit_bytes: int) -> Sequence[Part] | None:
        """Ranges of bytes, if records are found from any place."""
        if not self._starts_anywhere(source, fields):
            return None
        size = source.num_bytes
        stops = ((start, min(start + unit_bytes, size)) for start in range(0, size, unit_bytes))
        return [Part(start, stop, stop - start) for start, stop in stops]

    def _starts_anywhere(self, source: Source, fields: Fields) -> bool:
        delimiter = self.delimiter(fields)
        return source.compression == "none" and bool(delimiter) and not overlaps_itself(delimiter)

    def blocks(
        self,
        source: Source,
        extent: Extent,
        fields: Fields,
        block_bytes: int,
        raw: BinaryIO | None = None,
    ) -> Iterator[Block]:
        if source.compression == "none":  # a small file needs no large buffer
            block_bytes = min(block_bytes, source.num_bytes + 1)
        first = max(extent.start - len(self.delimiter(fields)), 0)
        last = source.num_bytes if extent.stop is None else extent.stop
        with opened(source, raw, (first, last)) as stream:
            for start, block in self.split(stream, extent.start, extent.stop, fields, block_bytes):
                yield Block(start, start + len(block), len(block), block)

    def digested(self, block: Block, fields: Fields) -> bytes | memoryview:
        return block.content  # type: ignore[no-any-return]

    def open_spool(self, path: Path | str, block: Block) -> SpoolWriter:
        return open(path, "wb", WRITE_BYTES)

    def spooled_blocks(
        self, spool: SpooledPart, source: Source, fields: Fields, block_bytes: int
    ) -> Iterator[Block]:
        with open(spool.path, "rb") as stream:
            expect_sequential(stream)
            for offset, block in self.split(stream, 0, None, fields, block_bytes):
                start = spool.first + offset
                yield Block(start, start + len(block), len(block), block)


@contextmanager
def opened(
    source: Source, raw: BinaryIO | None = None, ahead: Range | None = None
) -> Iterator[BinaryIO]:
    """The decompressed bytes of a source; of `raw`, if that is given, which stays open.

    `ahead` are the bytes of the file that will be read in order.
    """
    with (
        source.open() if raw is None else nullcontext(raw) as file,
        decompressed(file, source.where, source.compression) as stream,
    ):
        if ahead and source.in_parts and isinstance(remote := cast(object, file), RangeFile):
            remote.read_ahead([[ahead]], BLOCK_BYTES)
        if source.compression == "none" and not source.is_distant:
            expect_sequential(stream)
        yield stream


def expect_sequential(stream: BinaryIO) -> None:
    """Tell the system that a file on this machine is read from its start."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)

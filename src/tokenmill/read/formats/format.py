"""The interface of file formats.

To add a format, write one module with a subclass of `Format`, or a class that has its members, and
register it in the packaging metadata:

    [project.entry-points."tokenmill.formats"]
    warc = "my_package.warc:Warc"

`ByteFormat` implements most of them for consecutive records in the bytes of a file. `TableFormat`
(in `tables/format.py`) does so for tables that Arrow reads in a separate process.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from tokenmill.read.blocks import OpenRecord, iter_blocks, overlaps_itself
from tokenmill.read.compression import decompressed
from tokenmill.read.range_file import BLOCK_BYTES, Range, RangeFile
from tokenmill.read.registry import Registry

if TYPE_CHECKING:
    from tokenmill.core.records import DocumentBatch
    from tokenmill.read.fields import Fields
    from tokenmill.read.source import Source

WRITE_BYTES = 16 << 20  # Linux takes few large writes up to three times faster


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole records of a source that are not yet parsed."""

    start: int
    """Start of the records in the source: a byte of the decompressed file, or a row."""
    stop: int
    num_bytes: int
    """Size of the records in the decompressed file."""
    content: Any
    """Bytes, or another type that the parser of the format takes."""
    is_open: bool = False
    """Whether the next block continues the last record, which is too long."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A part of one source: bytes, row groups or record batches [start, stop)."""

    source: int
    start: int = 0
    stop: int | None = None
    """End of the extent; None for the end of the source."""
    first_row: int | None = None
    """For tables: the number of its first row, if known."""


Parts = Sequence[tuple[Extent, int]]
"""Consecutive parts of a source, each with its share of the bytes on disk."""
Parse = Callable[[Block, "Source"], "DocumentBatch"]
"""Turns the records of a block into documents and rejections. A bad record only rejects itself."""


class SpoolWriter(Protocol):
    """A writer of a spool file."""

    def write(self, content: Any, /) -> object:
        """Append the content of a block."""

    def close(self) -> object:
        """Finish the file."""


class Format(Protocol):
    """A file format.

    Methods that read a source raise a DataError if it is damaged, and an OSError if it cannot be
    read. The documents of a source must depend only on its bytes and the fields.
    """

    holds_records: bool = True
    """Whether files contain records with fields. All inputs of a build must agree on this."""
    compressible: bool = True
    """Whether files may be compressed as a whole."""
    range_suffixes: tuple[str, ...] = ()
    """Suffixes of remote files that can be read in parts without a download."""

    libraries: tuple[str, ...] = ()
    """Other packages with versions that affect what is read."""

    digests_texts_only: bool = False
    """Whether `digested` covers only texts, without their boundaries and other fields."""

    @abstractmethod
    def sniff(self, head: bytes, name: Path) -> bool:
        """Return whether a file has this format.

        `head` are the first bytes of the decompressed file; `name` has no compression suffix.
        """

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        """Return the fields in the first records of a source; empty if names are not known.

        Raises:
            UserError: the text field is missing, or another field is missing from a schema.
        """
        return set()

    def reads_whole(self, fields: Fields) -> bool:
        """Return whether a file is one document."""
        return False

    def totals(self, source: Source, fields: Fields) -> tuple[int, int] | None:
        """Estimate the bytes of text and the number of records of a source.

        Returns None if this is not known without reading all records.
        """
        return None

    @abstractmethod
    def num_starts(self, source: Source, fields: Fields) -> int:
        """Return the number of places (bytes, row groups) at which an extent can start."""

    @abstractmethod
    def cut(self, source: Source, fields: Fields, unit_bytes: int) -> Parts | None:
        """Cut a source into parts of about `unit_bytes` decompressed bytes.

        Returns None if the source can only be read from its start. Called for sources with at least
        `unit_bytes` bytes.
        """

    @abstractmethod
    def blocks(
        self,
        source: Source,
        extent: Extent,
        fields: Fields,
        block_bytes: int,
        raw: BinaryIO | None = None,
    ) -> Iterator[Block]:
        """Yield the records that start in an extent, in blocks of about `block_bytes`.

        `raw` is the opened file, for callers that track how far it was read.
        """

    @abstractmethod
    def parser(self, fields: Fields) -> Parse:
        """Return a parser for blocks."""

    @abstractmethod
    def digested(self, block: Block, fields: Fields) -> bytes | memoryview:
        """Return the bytes of a block that enter the digest of its source."""

    @abstractmethod
    def open_spool(self, path: Path | str, block: Block) -> SpoolWriter:
        """Create a spool file for blocks like this one."""

    @abstractmethod
    def spooled_blocks(
        self, path: Path, extent: Extent, source: Source, fields: Fields, block_bytes: int
    ) -> Iterator[Block]:
        """Yield the records of an extent from a spool file."""


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


class ByteFormat(Format):
    """Base class of formats with consecutive records in the bytes of a file.

    By default, files are read from their start. With a `delimiter`, reading can start anywhere.
    """

    def delimiter(self, fields: Fields) -> bytes:
        """Return the delimiter that ends every record; b"" if there is none."""
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
        return iter_blocks(stream, start, stop, delimiter, block_bytes, fields.max_record)

    def num_starts(self, source: Source, fields: Fields) -> int:
        """Return every byte, if there is a delimiter."""
        return source.num_bytes if self._starts_anywhere(source, fields) else 1

    def cut(self, source: Source, fields: Fields, unit_bytes: int) -> Parts | None:
        """Return ranges of bytes, if there is a delimiter."""
        if not self._starts_anywhere(source, fields):
            return None
        size = source.num_bytes
        stops = ((start, min(start + unit_bytes, size)) for start in range(0, size, unit_bytes))
        return [(Extent(source.index, start, stop), stop - start) for start, stop in stops]

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
        """Yield the bytes of the records that start in an extent."""
        if source.compression == "none":  # a small file needs no large buffer
            block_bytes = min(block_bytes, source.num_bytes + 1)
        first = max(extent.start - len(self.delimiter(fields)), 0)
        last = source.num_bytes if extent.stop is None else extent.stop
        with opened(source, raw, (first, last)) as stream:
            for start, block in self.split(stream, extent.start, extent.stop, fields, block_bytes):
                yield _block(start, block)

    def digested(self, block: Block, fields: Fields) -> bytes | memoryview:
        return block.content  # type: ignore[no-any-return]

    def open_spool(self, path: Path | str, block: Block) -> SpoolWriter:
        return open(path, "wb", WRITE_BYTES)

    def spooled_blocks(
        self, path: Path, extent: Extent, source: Source, fields: Fields, block_bytes: int
    ) -> Iterator[Block]:
        with open(path, "rb") as stream:
            expect_sequential(stream)
            for offset, block in self.split(stream, 0, None, fields, block_bytes):
                yield _block(extent.start + offset, block)


def _block(start: int, content: bytes) -> Block:
    is_open = isinstance(content, OpenRecord)
    return Block(start, start + len(content), len(content), content, is_open)


@contextmanager
def opened(
    source: Source, raw: BinaryIO | None = None, ahead: Range | None = None
) -> Iterator[BinaryIO]:
    """Open the decompressed bytes of a source, or of `raw` if given, which stays open.

    `ahead` is the range of bytes of the file that will be read in order.
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
    """Tell the system that a local file will be read sequentially."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)

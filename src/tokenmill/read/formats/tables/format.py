"""The base class of table formats, which Arrow reads in a separate process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Block, Extent, Format, Parse, Parts, SpoolWriter
from tokenmill.read.formats.tables import isolated

if TYPE_CHECKING:
    from tokenmill.core.records import DocumentBatch
    from tokenmill.read.formats.tables.messages import TableFile
    from tokenmill.read.formats.tables.record_batches import Table
    from tokenmill.read.source import Source


class TableFormat(Format):
    """A table format. Subclasses define `sniff` and `open`.

    Their modules are also loaded in the parser process, which has no numpy.
    """

    name: str
    """The registered name."""
    compressible = False
    libraries = ("pyarrow",)
    digests_texts_only = True
    has_groups = True
    """Whether parts of a file can be read separately."""

    def open(self, raw: BinaryIO, file: TableFile) -> Table:
        """Open a file in the parser process."""
        raise NotImplementedError

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        """Check the names and types of all fields against the schema."""
        isolated.ask(source, "columns", fields)
        return set()

    def totals(self, source: Source, fields: Fields) -> tuple[int, int] | None:
        """Estimate the bytes of the text column and the number of rows.

        Returns None if texts are built from several columns.
        """
        if not self.has_groups or fields.rendering:  # the size of rendered texts is unknown
            return None
        num_bytes, num_rows = isolated.ask(source, "totals", fields)
        return num_bytes, num_rows

    def num_starts(self, source: Source, fields: Fields) -> int:
        return isolated.ask(source, "count")[0]

    def cut(self, source: Source, fields: Fields, unit_bytes: int) -> Parts | None:
        """Return runs of groups of about `unit_bytes`; a file with a huge group is a stream."""
        numbers = isolated.ask(source, "groups") if self.has_groups else []
        sizes = numbers[::2]
        if not self.has_groups or max(sizes, default=0) > 2 * unit_bytes:
            return None
        parts: list[tuple[Extent, int]] = []
        total, start, first_row = max(sum(sizes), 1), 0, 0
        size = num_rows = 0
        for stop, (num_bytes, rows) in enumerate(zip(sizes, numbers[1::2], strict=True), 1):
            size, num_rows = size + num_bytes, num_rows + rows
            if stop == len(sizes) or size + sizes[stop] > unit_bytes:
                extent = Extent(source.index, start, stop, first_row)
                parts.append((extent, source.num_bytes * size // total))
                start, first_row = stop, first_row + num_rows
                size = num_rows = 0
        return parts

    def blocks(
        self,
        source: Source,
        extent: Extent,
        fields: Fields,
        block_bytes: int,
        raw: BinaryIO | None = None,
    ) -> Iterator[Block]:
        """Yield the rows of an extent, read in another process."""
        return isolated.iter_rows(source, fields, extent, block_bytes, raw)

    def parser(self, fields: Fields) -> Parse:
        from tokenmill.read.formats.tables.rows import parse_record_batch, rendering_parser

        if fields.rendering:
            return rendering_parser(fields)

        def parse(block: Block, source: Source) -> DocumentBatch:
            return parse_record_batch(block.content, block.start, source, fields)

        return parse

    def digested(self, block: Block, fields: Fields) -> bytes | memoryview:
        """Return the bytes of the texts; b"" if they are built from several columns."""
        if fields.rendering:
            return b""
        from tokenmill.read.formats.tables.rows import text_bytes

        return text_bytes(block.content, fields)

    def open_spool(self, path: Path | str, block: Block) -> SpoolWriter:
        import pyarrow as pa

        writer: SpoolWriter = pa.ipc.new_stream(str(path), block.content.schema)
        return writer

    def spooled_blocks(
        self, path: Path, extent: Extent, source: Source, fields: Fields, block_bytes: int
    ) -> Iterator[Block]:
        """Yield the rows of a spool file, which is trusted and needs no separate process."""
        import pyarrow as pa

        from tokenmill.read.formats.tables.record_batches import sliced

        row = extent.start
        for batch in pa.ipc.open_stream(str(path)):
            for piece in sliced(batch, block_bytes):
                yield Block(row, row + piece.num_rows, piece.nbytes, piece)
                row += piece.num_rows

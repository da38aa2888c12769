"""Arrow files (also called Feather) and Arrow streams, as `datasets.save_to_disk` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tokenmill.read.compression import damaged
from tokenmill.read.formats.tables.format import TableFormat
from tokenmill.read.formats.tables.messages import ReadRows, TableFile

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.read.formats.tables.record_batches import Announce

MAX_SAMPLED_BATCHES = 8
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class ArrowFile(TableFormat):
    """Arrow files: record batches and a footer with their positions."""

    name = "arrow-file"

    def sniff(self, head: bytes, name: Path) -> bool:
        return head.startswith(b"ARROW1\x00\x00")

    def open(self, raw: BinaryIO, file: TableFile) -> ArrowFileTable:
        return ArrowFileTable(raw)


class ArrowStream(TableFormat):
    """Arrow streams: consecutive record batches."""

    name = "arrow-stream"
    has_groups = False

    def sniff(self, head: bytes, name: Path) -> bool:
        return head.startswith(b"\xff\xff\xff\xff") and len(head) >= 8

    def open(self, raw: BinaryIO, file: TableFile) -> ArrowStreamTable:
        return ArrowStreamTable(raw, file.num_bytes)


class ArrowFileTable:
    """An open Arrow file."""

    def __init__(self, raw: BinaryIO) -> None:
        import pyarrow as pa

        self._reader = pa.ipc.open_file(raw)

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    @property
    def num_groups(self) -> int:
        count: int = self._reader.num_record_batches
        return count

    def groups(self) -> list[tuple[int, int]]:
        batches = map(self._validated, range(self.num_groups))
        return [(batch.nbytes, batch.num_rows) for batch in batches]

    def text_bytes(self, column: str) -> int:
        """Estimate the bytes of a column from some of its record batches."""
        count = self.num_groups
        looked_at = range(0, count, max(count // MAX_SAMPLED_BATCHES, 1))
        size = sum(_text_bytes(self._reader.get_batch(i), column) for i in looked_at)
        return round(size * count / max(len(looked_at), 1))

    def batches(
        self, command: ReadRows, columns: Sequence[str], announce: Announce
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Return the batches of the requested groups."""
        start, stop = command.groups or (0, self.num_groups)
        row = command.first_row
        if row is None:
            row = sum(self._validated(i).num_rows for i in range(start))
        return row, (self._reader.get_batch(i) for i in range(start, stop))

    def _validated(self, index: int) -> pa.RecordBatch:
        from tokenmill.read.formats.tables.record_batches import validated

        return validated(self._reader.get_batch(index))


class ArrowStreamTable:
    """An open Arrow stream."""

    def __init__(self, raw: BinaryIO, num_bytes: int) -> None:
        import pyarrow as pa

        self._raw = raw
        self._num_bytes = num_bytes
        self._reader: Any = pa.ipc.open_stream(raw)

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    @property
    def num_groups(self) -> int:
        """1, because a stream must be read from its start."""
        return 1

    def groups(self) -> list[tuple[int, int]]:
        return []

    def text_bytes(self, column: str) -> int:
        return 0

    def batches(
        self, command: ReadRows, columns: Sequence[str], announce: Announce
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Return all batches, because a stream has no groups."""
        return 0, self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the stream, which must end with its end mark.

        Without this check, a file that was truncated between two batches would look complete.
        """
        yield from self._reader
        self._raw.seek(self._raw.tell() - len(_END_OF_STREAM))
        if self._raw.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
            raise damaged("", "the Arrow stream is truncated: it has no end-of-stream marker")
        if self._raw.read(1):
            raise damaged("", "there is more data after the end of the Arrow stream")


def _text_bytes(batch: pa.RecordBatch, column: str) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    from tokenmill.read.formats.tables.record_batches import column_of, validated

    texts = column_of(validated(batch), column.split(".")).cast(pa.large_binary())
    return pc.sum(pc.binary_length(texts)).as_py() or 0

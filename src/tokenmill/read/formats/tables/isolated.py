"""Reading tables through parser processes, because damaged files can crash Arrow.

Arrow's C++ readers trust the metadata in a file, so they run in a separate process. A crash there
becomes a DamagedInputError here, and a new process reads the next file. Results are validated and
rewritten before they are sent back, so they can be trusted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from tokenmill.core.errors import TokenmillError
from tokenmill.read.fields import Fields
from tokenmill.read.formats.tables.messages import (
    BATCHES_PER_DECODE,
    CheckColumns,
    Command,
    CountGroups,
    Enough,
    GroupSizes,
    More,
    ReadRows,
    Rows,
    TableFile,
    Totals,
    Value,
)
from tokenmill.read.formats.tables.pool import borrowed_parser
from tokenmill.read.places.range_file import BLOCK_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.read.sources import Source
    from tokenmill.read.units import Extent


class Slice(NamedTuple):
    """Some rows of a file."""

    first: int
    """The number of the first row."""
    batch: pa.RecordBatch
    """The requested columns under their requested names, the text first; all columns of the file if
    the whole record was requested.
    """
    num_bytes: int
    """Decompressed size of the rows in the file."""


def check_schema(source: Source, fields: Fields) -> None:
    """Raise a UserError if a field is missing, or if the text is not a column of strings."""
    _ask(source, CheckColumns(file=_file(source), **_columns(fields)))


def group_sizes(source: Source) -> list[tuple[int, int]]:
    """Return bytes and rows of each row group (Parquet) or record batch (Arrow), all columns."""
    numbers = _ask(source, GroupSizes(file=_file(source)))
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def num_groups(source: Source) -> int:
    """Return the number of row groups (Parquet) or record batches (Arrow); 1 for a stream."""
    return _ask(source, CountGroups(file=_file(source)))[0]


def totals(source: Source, fields: Fields) -> tuple[int, int]:
    """Estimate the bytes of text in a file; return them with the number of rows."""
    num_bytes, num_rows = _ask(source, Totals(file=_file(source), column=fields.text))
    return num_bytes, num_rows


def iter_pieces(
    source: Source,
    fields: Fields,
    extent: Extent,
    batch_bytes: int,
    raw: BinaryIO | None = None,
) -> Iterator[Slice]:
    """Yield the rows of an extent of row groups or record batches, in order.

    `raw` is the opened file, for callers that track how far it was read.

    Raises:
        DamagedInputError: the file is damaged, or crashes Arrow.
        UserError: a field is missing, or the text is not a column of strings.
        OSError: the file cannot be read.
    """
    import pyarrow as pa

    # A caller that needs little of a remote file downloads little.
    block_bytes = min(batch_bytes * BATCHES_PER_DECODE, BLOCK_BYTES) if source.is_distant else 0
    command = ReadRows(
        file=_file(source, block_bytes),
        groups=None if extent.stop is None else (extent.start, extent.stop),
        first_row=extent.first_row,
        batch_bytes=batch_bytes,
        **_columns(fields),
    )
    with borrowed_parser(source) as parser, _opened(source, raw) as file:
        parser.send(command)
        ahead = False  # often only the first rows are needed
        while True:
            reply, payload = parser.answer(file)
            if not isinstance(reply, Rows):
                break
            if raw and not source.is_distant:
                raw.seek(reply.position)
            if ahead:
                parser.send(More())
            batch = pa.ipc.open_stream(pa.py_buffer(payload)).read_next_batch()
            try:
                yield Slice(reply.first, batch, reply.num_bytes)
            except GeneratorExit:
                if not ahead:  # else end the process: the next rows may take long
                    parser.send(Enough())
                    with contextlib.suppress(TokenmillError, OSError):
                        parser.answer(file)
                raise
            if not ahead:
                parser.send(More())
            ahead = not source.is_distant


def _columns(fields: Fields) -> dict[str, Any]:
    """Return the wanted columns as fields of a command."""
    return {
        "columns": [*(fields.texts or ()), *fields.extra],
        "optional": sorted(fields.may_be_missing),
        "text": None if fields.rendering else fields.text,
        "whole": fields.wanted is None,
    }


def _file(source: Source, block_bytes: int = 0) -> TableFile:
    return TableFile(
        format=source.format,
        path=str(source.path or ""),
        num_bytes=source.num_bytes,
        block_bytes=block_bytes,
    )


def _ask(source: Source, command: Command) -> list[int]:
    with borrowed_parser(source) as parser, _opened(source, None) as raw:
        parser.send(command)
        reply, _ = parser.answer(raw)
        assert isinstance(reply, Value)
        return reply.numbers


@contextmanager
def _opened(source: Source, raw: BinaryIO | None) -> Iterator[BinaryIO | None]:
    """Open a remote file here, where its bytes are fetched; the parser opens local files."""
    if raw is None and source.is_distant:
        with source.open() as file:
            yield file
    else:
        yield raw

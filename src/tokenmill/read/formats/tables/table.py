"""An open file of a table, as the process that parses sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.read.formats.tables.messages import ReadRows

Announce = Callable[[list[list[tuple[int, int]]]], None]
"""Says which ranges [start, stop) of each column will be read, in order."""


class Table(Protocol):
    """An open file, in the process that parses it. Nothing that Arrow finds in it is trusted.

    What a method raises makes the file a damaged one; a UserError stays one.
    """

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""

    @property
    def num_groups(self) -> int:
        """The number of parts that can be read by themselves."""

    def groups(self) -> list[tuple[int, int]]:
        """Bytes and rows of each of them, all columns together."""

    def text_bytes(self, column: str) -> int:
        """About how many bytes a column of texts holds; 0 if there are no groups."""

    def batches(
        self, command: ReadRows, announce: Announce
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """The first row of the wanted groups, and their record batches, not yet validated."""

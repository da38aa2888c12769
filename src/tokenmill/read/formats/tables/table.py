"""The interface of an open table file in the parser process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.read.formats.tables.messages import ReadRows

Announce = Callable[[list[list[tuple[int, int]]]], None]
"""Announces which ranges [start, stop) of each column will be read, in order."""


class Table(Protocol):
    """An open table file in the parser process. Its content is not trusted.

    A UserError that a method raises is passed on. Any other exception means a damaged file.
    """

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""

    @property
    def num_groups(self) -> int:
        """The number of parts that can be read separately."""

    def groups(self) -> list[tuple[int, int]]:
        """Return the bytes and rows of each part, over all columns."""

    def text_bytes(self, column: str) -> int:
        """Estimate the bytes of a text column; 0 if there are no groups."""

    def batches(
        self, command: ReadRows, announce: Announce
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Return the first row of the requested groups, and their unvalidated record batches."""

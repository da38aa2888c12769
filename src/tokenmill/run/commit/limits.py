"""Limits on documents and tokens. Units run in any order, so where a limit falls is found
afterwards, in the order of the inputs: it is the same for any number of workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence

from tokenmill.read.units import Stream, Unit, unit_key
from tokenmill.run.units.assignment import NO_LIMIT, Limit, Receipt

LIMITED = "-limit"
"""What follows the name of a unit that was run again, up to a limit."""


def unit_keys(item: Unit | Stream, ends: Mapping[int, int]) -> Iterator[str]:
    """Yield the units of an item; those of a stream whose end nobody has seen never end."""
    if isinstance(item, Unit):
        yield item.key
        return
    part = 0
    while part < ends.get(item.source, part + 1):
        yield unit_key(item.source, part)
        part += 1


class Prefix:
    """Finished units in the order of the inputs, up to the first that is not, or to the limit."""

    def __init__(self, items: Sequence[Unit | Stream], limit: Limit) -> None:
        self._limit = limit
        self._items = iter(items)
        self._item: Unit | Stream | None = next(self._items, None)
        self._documents = self._tokens = self._num_parts = 0
        self.keys: list[str] = []
        self.crossing: tuple[str, Limit] | None = None
        """The unit in which the limit is reached, and what it may still write."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return self._item is None or self.crossing is not None

    def advance(
        self, finished: Container[str], receipts: Mapping[str, Receipt], ends: Mapping[int, int]
    ) -> None:
        """Go as far as units are `finished`; their `receipts` are asked for if there is a limit.

        `ends` holds the parts of finished streams.
        """
        while self._item is not None and self.crossing is None:
            for key in itertools.islice(unit_keys(self._item, ends), self._num_parts, None):
                if key not in finished:
                    return
                self._num_parts += 1
                self.keys.append(key)
                if self._limit != NO_LIMIT and self._add(receipts[key]):
                    return
            self._item, self._num_parts = next(self._items, None), 0

    def _add(self, receipt: Receipt) -> bool:
        """Count a unit; True if the limit is reached in it."""
        limit = Limit(
            documents=_rest(self._limit.documents, self._documents),
            tokens=_rest(self._limit.tokens, self._tokens),
        )
        self._documents += receipt.documents
        self._tokens += receipt.tokens
        over_documents = limit.documents is not None and receipt.documents >= limit.documents
        over_tokens = limit.tokens is not None and receipt.tokens >= limit.tokens
        if over_documents or over_tokens:
            self.crossing = (receipt.key, limit)
        return self.crossing is not None


def _rest(limit: int | None, used: int) -> int | None:
    return None if limit is None else limit - used

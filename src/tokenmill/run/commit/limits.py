"""Limits on documents and tokens.

Units run in any order, but limits apply in the order of the inputs. So the unit that reaches a
limit is found afterwards, and is the same for any number of workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence

from tokenmill.read.units import Stream, Unit, unit_key
from tokenmill.run.units.assignment import NO_LIMIT, Limit, Receipt

LIMITED = "-limit"
"""The suffix of the key of a unit that ran again up to a limit."""


def unit_keys(item: Unit | Stream, ends: Mapping[int, int]) -> Iterator[str]:
    """Yield the unit keys of an item. For a stream without a known end, yield keys forever."""
    if isinstance(item, Unit):
        yield item.key
        return
    part = 0
    while part < ends.get(item.source, part + 1):
        yield unit_key(item.source, part)
        part += 1


class Prefix:
    """Finished units in the order of the inputs, up to the first unfinished one or the limit."""

    def __init__(self, items: Sequence[Unit | Stream], limit: Limit) -> None:
        self._limit = limit
        self._items = iter(items)
        self._item: Unit | Stream | None = next(self._items, None)
        self._documents = self._tokens = self._num_parts = 0
        self.keys: list[str] = []
        self.crossing: tuple[str, Limit] | None = None
        """The unit that reaches the limit, and what it may still write."""

    @property
    def is_complete(self) -> bool:
        """Whether all units are finished, or the limit is reached."""
        return self._item is None or self.crossing is not None

    def advance(
        self, finished: Container[str], receipts: Mapping[str, Receipt], ends: Mapping[int, int]
    ) -> None:
        """Extend the prefix by `finished` units. With a limit, their `receipts` are needed.

        `ends` holds the number of parts of finished streams.
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
        """Count a unit. True if it reaches the limit."""
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

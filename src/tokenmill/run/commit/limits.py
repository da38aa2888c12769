"""Limits on documents and tokens. Units run in any order, so where a limit falls is found
afterwards, in the order of the inputs: it is the same for any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenmill.read.units import Stream, Unit, unit_key
from tokenmill.run.units.assignment import Limit, Receipt

UNKNOWN_PARTS = 999_999
"""Of a stream whose end has not been seen: more than there can be."""


def receipts_in_order(
    items: Iterable[Unit | Stream], receipts: Mapping[str, Receipt], ends: Mapping[int, int]
) -> list[Receipt]:
    """Receipts up to the first unit that has none; `ends` holds the parts of finished streams."""
    found: list[Receipt] = []
    for item in items:
        if isinstance(item, Unit):
            keys = [item.key]
        else:
            parts = ends.get(item.source, UNKNOWN_PARTS)
            keys = [unit_key(item.source, part) for part in range(parts)]
        for key in keys:
            if key not in receipts:
                return found
            found.append(receipts[key])
    return found


def crossing(whole: Limit, receipts: Iterable[Receipt]) -> tuple[str, Limit] | None:
    """The unit in which the limit of a build is reached, and what it may still write."""
    documents = tokens = 0
    for receipt in receipts:
        limit = Limit(
            documents=None if whole.documents is None else whole.documents - documents,
            tokens=None if whole.tokens is None else whole.tokens - tokens,
        )
        documents, tokens = documents + receipt.documents, tokens + receipt.tokens
        over_documents = limit.documents is not None and receipt.documents >= limit.documents
        over_tokens = limit.tokens is not None and receipt.tokens >= limit.tokens
        if receipt.limited or over_documents or over_tokens:
            return receipt.key, limit
    return None

"""What two tokenizers differ in: component by component, with counts and the first examples."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenmill.encode.fingerprint import Fingerprint

MAX_EXAMPLES = 3
MAX_SHOWN_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Difference:
    """A component that differs between two tokenizers."""

    component: str
    added: int
    """Entries only in the other."""
    removed: int
    """Entries only in the first."""
    changed: int
    """Entries with different values: tokens with another id, merges in another order."""
    examples: list[str]

    def __str__(self) -> str:
        if self.component == "kind":
            return f"kind: {self.examples[0]}: their parts cannot be compared"
        counts = f"{self.added:,} added, {self.removed:,} removed, {self.changed:,} changed"
        return f"{self.component}: {counts}: {'; '.join(self.examples)}"


def compare_tokenizers(ours: Fingerprint, theirs: Fingerprint) -> list[Difference]:
    """The components that differ: none where the fingerprints are equal.

    Tokenizers of two kinds differ as a whole.
    """
    if ours.kind != theirs.kind:
        return [Difference("kind", 0, 0, 1, [f"{ours.kind} -> {theirs.kind}"])]
    names = dict.fromkeys([*ours.digests, *theirs.digests])
    return [
        _difference(name, ours.components.get(name, {}), theirs.components.get(name, {}))
        for name in names
        if ours.digests.get(name) != theirs.digests.get(name)
    ]


def _difference(name: str, ours: Any, theirs: Any) -> Difference:
    if name == "merges":
        return _merges_difference(list(map(tuple, ours)), list(map(tuple, theirs)))
    before, after = _by_name(name, ours), _by_name(name, theirs)
    removed = [key for key in before if key not in after]
    added = [key for key in after if key not in before]
    changed = [key for key in before if key in after and before[key] != after[key]]
    examples = [
        *(f"- {_shown(key)} {_shown(before[key])}" for key in removed[:MAX_EXAMPLES]),
        *(f"+ {_shown(key)} {_shown(after[key])}" for key in added[:MAX_EXAMPLES]),
        *(_change(key, before[key], after[key]) for key in changed[:MAX_EXAMPLES]),
    ]
    return Difference(name, len(added), len(removed), len(changed), examples)


def _by_name(component: str, value: Any) -> Mapping[Any, Any]:
    """A component as a mapping: pieces by content, steps by position from 1."""
    if not isinstance(value, list):
        return dict(value)
    if component == "vocabulary":
        return {content: [i, score] for i, (content, score) in enumerate(value)}
    return dict(enumerate(value, 1))


def _merges_difference(
    ours: Sequence[tuple[str, ...]], theirs: Sequence[tuple[str, ...]]
) -> Difference:
    """Merges by their order among common ones, so that a new merge does not move others."""
    before, after = dict.fromkeys(ours), dict.fromkeys(theirs)
    removed = [merge for merge in ours if merge not in after]
    added = [merge for merge in theirs if merge not in before]
    kept = [merge for merge in ours if merge in after]
    others = [merge for merge in theirs if merge in before]
    moved = [pair for pair in zip(kept, others, strict=True) if pair[0] != pair[1]]
    examples = [
        *(f"- {_shown(merge)}" for merge in removed[:MAX_EXAMPLES]),
        *(f"+ {_shown(merge)}" for merge in added[:MAX_EXAMPLES]),
        *(f"{_shown(a)} -> {_shown(b)} in its place" for a, b in moved[:MAX_EXAMPLES]),
    ]
    return Difference("merges", len(added), len(removed), len(moved), examples)


def _change(key: object, before: Any, after: Any) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = dict.fromkeys(itertools.chain(before, after))
        parts = list(_changed_values(keys, before, after))
        return f"{_shown(key)} {', '.join(parts)}"
    return f"{_shown(key)} {_shown(before)} -> {_shown(after)}"


def _changed_values(keys: Mapping[str, None], before: Any, after: Any) -> Iterator[str]:
    for key in keys:
        if key not in before or key not in after or before[key] != after[key]:
            values = [_shown(value[key]) if key in value else "none" for value in (before, after)]
            yield f"{key} {' -> '.join(values)}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[:MAX_SHOWN_CHARACTERS]}... ({len(text):,} characters)"

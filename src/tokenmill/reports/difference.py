"""How two datasets or views differ: sources, documents, tokens, tokenizer and options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import SourceEntry

Pair = tuple[Any, Any]
"""The value in the first dataset and that in the second."""


@dataclass(frozen=True, slots=True)
class ChangedSource:
    """A source that both datasets have, with different content or other documents."""

    name: str
    documents: tuple[int, int]
    tokens: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Difference:
    """How the second of two datasets differs from the first."""

    ids: tuple[str, str]
    """Their dataset ids: equal only if tokens, boundaries, tokenizer and options are."""
    documents: tuple[int, int]
    tokens: tuple[int, int]
    added: list[str]
    """Sources that only the second one has."""
    gone: list[str]
    """Sources that only the first one has."""
    changed: list[ChangedSource]
    tokenizer: dict[str, Pair]
    """What differs of the tokenizer, by name."""
    policies: dict[str, Pair]
    """The options of reading and encoding that differ, by path such as "read.validation"."""
    questions: tuple[list[str], list[str]]
    """How the documents were chosen, if they are views."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs. How documents were chosen does not count."""
        differs = self.added or self.gone or self.changed or self.tokenizer or self.policies
        return self.ids[0] == self.ids[1] and not differs


def compare_datasets(one: Dataset, other: Dataset) -> Difference:
    """Compare two datasets by their manifests. Tokens are not read."""
    before, after = _by_name(one), _by_name(other)
    tokenizers = [msgspec.to_builtins(each.manifest.tokenizer) for each in (one, other)]
    for each in tokenizers:
        del each["files"]
    return Difference(
        ids=(one.manifest.dataset_id, other.manifest.dataset_id),
        documents=(one.num_documents, other.num_documents),
        tokens=(one.num_tokens, other.num_tokens),
        added=[name for (name, number) in after if (name, number) not in before],
        gone=[name for (name, number) in before if (name, number) not in after],
        changed=list(_changed(before, after)),
        tokenizer=_differing(tokenizers[0], tokenizers[1]),
        policies=_differing(one.manifest.policies, other.manifest.policies),
        questions=(one.question, other.question),
    )


def _by_name(dataset: Dataset) -> dict[tuple[str, int], SourceEntry]:
    """The sources by name and, because a merged view can have several of a name, by number."""
    seen: Counter[str] = Counter()
    found = {}
    for source in dataset.manifest.sources:
        found[source.name, seen[source.name]] = source
        seen[source.name] += 1
    return found


def _changed(
    before: Mapping[tuple[str, int], SourceEntry], after: Mapping[tuple[str, int], SourceEntry]
) -> Iterator[ChangedSource]:
    for key, one in before.items():
        other = after.get(key)
        if other is None:
            continue
        documents = one.counts.documents, other.counts.documents
        tokens = one.counts.tokens, other.counts.tokens
        content = (one.bytes, one.xxh3_128) == (other.bytes, other.xxh3_128)
        if not content or documents[0] != documents[1] or tokens[0] != tokens[1]:
            yield ChangedSource(one.name, documents, tokens)


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Pair]:
    """The values that differ by their path; None stands for a value that is absent."""
    found = {}
    for name in {**one, **other}:
        pair = one.get(name), other.get(name)
        if isinstance(pair[0], dict) and isinstance(pair[1], dict):
            inner = _differing(pair[0], pair[1])
            found.update({f"{name}.{path}": each for path, each in inner.items()})
        elif pair[0] != pair[1]:
            found[name] = pair
    return found

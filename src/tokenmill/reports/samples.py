"""Even samples of a dataset, for reports that answer in seconds whatever its size.

A sample is made of blocks of consecutive documents or tokens at equal distances in every shard, so
it depends on the dataset alone. Of a dataset in a bucket, only some shards are looked at.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.reports.lengths.counts import LengthCounts
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.plan import Plan

T = TypeVar("T")
BLOCK_DOCUMENTS = 1 << 10
BLOCK_TOKENS = 1 << 14
BLOCK_SEQUENCES = 1 << 8
SMALL = (1 << 16, 64)
"""Documents and shards of a sample that is drawn in milliseconds."""
MOST_DISTANT_SHARDS = 8
"""Shards of a dataset in a bucket to look at: each is downloaded."""


@dataclass(frozen=True, slots=True)
class SampledLengths:
    """Document lengths of a sample, scaled to all documents."""

    counts: LengthCounts
    documents: int
    """Documents that were looked at."""
    is_whole: bool


def near_shards(dataset: Dataset) -> list[Shard]:
    """The shards to look at: all with documents, or some of a dataset in a bucket."""
    if dataset.origin is None:
        return [shard for shard in dataset.shards if shard.num_documents]
    return _evenly(dataset.shards, MOST_DISTANT_SHARDS)


def sampled_lengths(dataset: Dataset, most: int, most_shards: int = 1 << 30) -> SampledLengths:
    """Lengths of about `most` documents, in up to `most_shards`; of all, if there are no more.

    Raises:
        VerificationError: an index is damaged.
    """
    shards = _evenly(near_shards(dataset), most_shards)
    step = max(sum(shard.num_documents for shard in shards) // most, 1)
    parts = [part for shard in shards for part in _blocks(_lengths(shard), BLOCK_DOCUMENTS, step)]
    found = LengthCounts.of([np.concatenate(parts)] if parts else [])
    if len(found.lengths) and found.lengths[0] < 1:
        why = "it contains a document without tokens"
        raise VerificationError("a token index is damaged", where=dataset.location, why=why)
    seen = found.num_documents
    if seen == dataset.num_documents:
        return SampledLengths(found, seen, is_whole=True)
    counts = np.rint(found.counts * (dataset.num_documents / max(seen, 1))).astype(np.int64)
    return SampledLengths(LengthCounts(found.lengths, counts), seen, is_whole=False)


def token_histogram(dataset: Dataset, most: int) -> Int64Array:
    """How often each id occurs among about `most` tokens, shape (largest id + 1,)."""
    shards = near_shards(dataset)
    step = max(sum(shard.num_tokens for shard in shards) // most, 1)
    size = dataset.manifest.tokenizer.largest_id + 1
    total = np.zeros(size, np.int64)
    for shard in shards:
        if shard.entry.tokens:
            parts = list(_token_blocks(shard, step))
            total += np.bincount(np.concatenate(parts), minlength=size)[:size]
            shard.release()
    return total


def sampled_plan(plan: Plan, most: int) -> tuple[Int64Array, Int64Array]:
    """Sizes of segments and of whole sequences, of about `most` sequences."""
    step = max(len(plan) // most, 1)
    sizes, sums = [], []
    for numbers in _blocks(np.arange(len(plan)), BLOCK_SEQUENCES, step):
        offsets = np.asarray(plan.offsets[numbers[0] : numbers[-1] + 2])
        lengths = np.asarray(plan.lengths[offsets[0] : offsets[-1]], np.int64)
        sizes.append(lengths)
        sums.append(np.add.reduceat(lengths, offsets[:-1] - offsets[0]))
    empty = np.zeros(0, np.int64)
    return np.concatenate([empty, *sizes]), np.concatenate([empty, *sums])


def chosen_documents(dataset: Dataset, count: int) -> list[int]:
    """Numbers of some documents, at equal distances in a few shards."""
    firsts = offsets_from_lengths([shard.entry.documents for shard in dataset.shards]).tolist()
    filled = [at for at, shard in enumerate(dataset.shards) if shard.num_documents]
    shards = _evenly(filled, min(MOST_DISTANT_SHARDS, count))
    found: list[int] = []
    for at in shards:
        chosen = dataset.shards[at].chosen
        each = _evenly(range(len(chosen)), -(-count // len(shards)))
        found += (firsts[at] + chosen[each]).tolist()
    return found[:count]


def smaller(dataset: Dataset, most: int) -> Dataset | None:
    """The dataset with shards at equal distances that hold about `most` documents.

    None if a single shard holds many more.
    """
    if dataset.num_documents <= most and dataset.origin is None:
        return dataset
    mean = dataset.num_documents / max(len(dataset.shards), 1)
    if mean > 2 * most:
        return None
    part = copy.copy(dataset)
    part.shards = _evenly(near_shards(dataset), max(int(most / mean), 1))
    return part


def _lengths(shard: Shard) -> npt.NDArray[np.int32]:
    """The mapped lengths of a shard, or those of the documents in the view."""
    lengths = shard.index[: 4 * shard.entry.documents].view("<i4")
    return lengths if shard.selected is None else lengths[shard.selected]


def _token_blocks(shard: Shard, step: int) -> Iterator[npt.NDArray[np.integer]]:
    """Blocks of the tokens of a shard, one of every `step`; of a view, of whole documents."""
    if shard.selected is None:
        yield from _blocks(shard.ids, BLOCK_TOKENS, step)
        return
    for documents in _blocks(shard.chosen, 1, step):
        for index in documents.tolist():
            yield shard.document(index)


def _blocks(
    values: npt.NDArray[np.integer], size: int, step: int
) -> Iterator[npt.NDArray[np.integer]]:
    """Blocks of `size` values, one of every `step`; everything as one block if `step` is 1."""
    size = len(values) if step == 1 else size
    for start in range(0, len(values), max(size * step, 1)):
        yield np.asarray(values[start : start + size])


def _evenly(items: Sequence[T], count: int) -> list[T]:
    """At most `count` items at equal distances, the first one among them."""
    count = min(count, len(items))
    return [items[at * len(items) // count] for at in range(count)]

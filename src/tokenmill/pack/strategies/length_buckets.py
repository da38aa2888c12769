"""Power-of-two length buckets: every sequence is one segment, and sequences vary in length.

A document is divided into the longest buckets first, as in "Dataset Decomposition"
(https://arxiv.org/abs/2405.13226). With sequences of up to 8 and buckets from 2, 21 tokens give
[8] [8] [4] [1], the last one padded to 2. No token attends to another document, and none is lost.
A step with a constant number of tokens has more sequences if they are short.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenmill.core.records import Int32Array, Segments, Sequences
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import for_steps
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Divide pieces of any length into powers of two."""
    lengths = pieces.segments.lengths
    longest, smallest = options.length, options.smallest_bucket
    counts = for_steps(_count, 4 * len(lengths))(lengths, longest, smallest)
    total = int(counts.sum(dtype=np.int64))
    starts, taken = for_steps(_part, total)(lengths, total, longest, smallest)
    whole = pieces.segments.take(np.repeat(np.arange(len(lengths)), counts))
    segments = Segments(whole.documents, whole.starts + starts, taken)
    return Sequences(segments, np.arange(len(segments) + 1, dtype=np.int64))


def _sequence_lengths(options: PackOptions) -> list[int]:
    """Return the lengths of all buckets, ascending."""
    smallest = options.smallest_bucket
    return [smallest << k for k in range((options.length // smallest).bit_length())]


def _problems(options: PackOptions) -> Iterator[str]:
    if options.reserve:
        yield "pack.reserve: cannot be combined with length-buckets"
    smallest = options.smallest_bucket
    if smallest & (smallest - 1) or options.length & (options.length - 1):
        yield "pack: length-buckets needs powers of two: sequence_length, smallest_bucket"
    elif smallest > options.length:
        yield "pack.smallest_bucket: is longer than a sequence"


STRATEGY = Strategy(
    pack, cuts_documents=True, problems=_problems, sequence_lengths=_sequence_lengths
)


@compiled
def _count(lengths: Int32Array, longest: int, smallest: int) -> Int32Array:
    counts = np.empty(len(lengths), np.int32)
    for i in range(len(lengths)):
        counts[i] = lengths[i] // longest
        rest = lengths[i] % longest
        bucket = longest
        while rest > 0:
            while bucket > rest and bucket > smallest:
                bucket >>= 1
            rest -= min(bucket, rest)
            counts[i] += 1
    return counts


@compiled
def _part(
    lengths: Int32Array, total: int, longest: int, smallest: int
) -> tuple[Int32Array, Int32Array]:
    starts = np.empty(total, np.int32)
    taken = np.empty(total, np.int32)
    k = 0
    for i in range(len(lengths)):
        start = 0
        bucket = longest
        while start < lengths[i]:
            rest = lengths[i] - start
            while bucket > rest and bucket > smallest:
                bucket >>= 1
            starts[k], taken[k] = start, min(bucket, rest)
            start += taken[k]
            k += 1
    return starts, taken

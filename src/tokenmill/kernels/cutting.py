"""Loops that cut documents: into chunks, runs, buckets and windows, or at boundaries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled

RUN_SEQUENCES = 16
"""Most sequences of a run of documents."""
Edges = tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]
"""Tokens added before and after each document: 1 if it is a range that begins or ends inside."""


@compiled
def chunk(
    lengths: Int32Array,
    starts_anew: npt.NDArray[np.bool_],
    space: tuple[int, int],
    max_segments: int,
    room: int,
) -> tuple[Int32Array, Int32Array, Int32Array, Int64Array]:
    """Return each segment's piece, start and length, and the offsets of sequences."""
    length, reserve = space
    of = np.empty(room, np.int32)
    parts = np.empty(room, np.int32)
    taken = np.empty(room, np.int32)
    offsets = np.zeros(room + 1, np.int64)
    k, sequence, used = 0, 0, 0
    for i in range(len(lengths)):
        start = 0
        if used and starts_anew[i]:
            sequence += 1
            offsets[sequence] = k
            used = 0
        while start < lengths[i]:
            part = min(lengths[i] - start, length - reserve - used)
            of[k], parts[k], taken[k] = i, start, part
            k += 1
            start += part
            used += part + reserve
            if used + reserve >= length or k - offsets[sequence] == max_segments:
                sequence += 1
                offsets[sequence] = k
                used = 0
    if used:
        sequence += 1
        offsets[sequence] = k
    return of[:k], parts[:k], taken[:k], offsets[: sequence + 1]


@compiled
def run_starts(offsets: Int64Array, length: int, price: int) -> Int64Array:
    """Return the first document of each run, from the lowest cost of all documents before it."""
    num_documents = len(offsets) - 1
    cost = np.full(num_documents + 1, np.iinfo(np.int64).max, np.int64)
    cost[0] = 0
    came_from = np.zeros(num_documents + 1, np.int64)
    for first in range(num_documents):
        cuts = 0
        for last in range(first, num_documents):
            start, stop = offsets[last] - offsets[first], offsets[last + 1] - offsets[first]
            sequences = (stop + length - 1) // length
            if last > first and sequences > RUN_SEQUENCES:
                break
            cuts += (stop - 1) // length - start // length
            total = cost[first] + sequences * length - stop + price * cuts
            if total < cost[last + 1]:
                cost[last + 1] = total
                came_from[last + 1] = first
    places = [num_documents]
    while places[-1] > 0:
        places.append(came_from[places[-1]])
    return np.array(places[::-1], np.int64)


@compiled
def count_buckets(lengths: Int32Array, longest: int, smallest: int) -> Int32Array:
    """Return the number of segments of each document, divided into the longest buckets first."""
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
def fill_buckets(
    lengths: Int32Array, total: int, longest: int, smallest: int
) -> tuple[Int32Array, Int32Array]:
    """Return the start and the length of each of the `total` segments of `count_buckets`."""
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


@compiled
def count_windows(
    taken: Int32Array, edges: Edges, room: int, bos: int, eos: int, overlap: int
) -> npt.NDArray[np.int64]:
    """Return the number of windows of each document, which may overlap."""
    counts = np.ones(len(taken), np.int64)
    for i in range(len(taken)):
        start = 0
        before = int(edges[0][i])  # a whole document's first window gets no added BOS
        while taken[i] - start > room - before - int(edges[1][i]):
            start += room - before - eos - overlap
            before = bos
            counts[i] += 1
    return counts


@compiled
def windows(
    taken: Int32Array, edges: Edges, total: int, room: int, bos: int, eos: int, overlap: int
) -> tuple[Int32Array, Int32Array]:
    """Return the start and the length of each of the `total` windows of `count_windows`."""
    starts = np.zeros(total, np.int32)
    lengths = np.empty(total, np.int32)
    k = 0
    for i in range(len(taken)):
        start = 0
        before = int(edges[0][i])
        while taken[i] - start > room - before - int(edges[1][i]):
            starts[k] = start
            lengths[k] = room - before - eos
            start += room - before - eos - overlap
            before = bos
            k += 1
        starts[k] = start
        lengths[k] = taken[i] - start
        k += 1
    return starts, lengths


@compiled
def boundary_starts(
    ids: npt.NDArray[np.integer],
    tables: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    edges: tuple[int, int],
    room: int,
    bos: int,
    eos: int,
    slack: int,
) -> Int32Array:
    """Return the starts of a document's segments, after the last boundary within the slack."""
    ends, opens, closes = tables
    starts = [0]
    before = edges[0]
    while len(ids) - starts[-1] > room - before - edges[1]:
        full = starts[-1] + room - before - eos
        stop = full
        for place in range(full, max(full - slack, starts[-1]), -1):
            last, second_last = ids[place - 1], ids[place - 2]  # place is at least 1 there
            if ends[last] or (place > 1 and opens[second_last] and closes[last]):
                stop = place
                break
        starts.append(stop)
        before = bos
    result = np.empty(len(starts), np.int32)
    for i in range(len(starts)):
        result[i] = starts[i]
    return result

"""Draw a sample of documents, with the share of every source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenmill.core.records import Advance, BoolArray, Int64Array
from tokenmill.kernels.permutation import keyed_hash
from tokenmill.kernels.shares import fill_shares
from tokenmill.store.selecting.places import Place

DOCUMENT_SEED, SOURCE_SEED = 0x73616D706C65, 0x736F75726365
ONE = 1 << 32


def sample(
    places: Sequence[Place], chosen: BoolArray, num_tokens: int, seed: int, advance: Advance
) -> tuple[int, int]:
    """Clear the documents that are not in a sample; return how many, and their tokens.

    The documents of each source are taken in a random order that depends on the seed only, until
    they have the source's share of `num_tokens`. Whether the last one is taken is random, too, so
    that many small sources together give their share.

    Args:
        places: the shards.
        chosen: documents to draw from, over all shards, shape (num_documents,).
        num_tokens: tokens of the sample.
        seed: the seed.
        advance: called to show progress.
    """
    count = int(np.count_nonzero(chosen))
    bits = np.uint64(max(count - 1, 1).bit_length())
    keys = np.empty(count, np.uint64)
    lengths, sources = np.empty(count, np.int32), np.empty(count, np.int32)
    num_sources = max((p.first_source + len(p.dataset.manifest.sources) for p in places), default=0)
    of_sources = np.zeros(num_sources, np.int64)
    stop = 0
    for place in places:
        documents = np.flatnonzero(chosen[place.documents])
        start, stop = stop, stop + len(documents)
        numbers = (documents + place.documents.start).astype(np.uint64)
        order = np.arange(start, stop, dtype=np.uint64)
        keys[start:stop] = keyed_hash(numbers, seed ^ DOCUMENT_SEED) >> bits << bits | order
        lengths[start:stop] = found = place.shard.lengths[documents]
        of = place.dataset.source_numbers(place.shard)[documents] + place.first_source
        sources[start:stop] = of
        np.add.at(of_sources, of, found)
        place.shard.release()
        advance("drawing a sample", place.documents.stop, len(chosen))
    keys.sort()
    targets, draws = _targets(of_sources, num_tokens, seed)
    taken = fill_shares(keys, bits, sources, lengths, targets, draws)
    tokens = int(lengths[~taken].sum(dtype=np.int64))
    stop = 0
    for place in places:
        part = chosen[place.documents]
        start, stop = stop, stop + int(np.count_nonzero(part))
        part[part] = taken[start:stop]
    return count - int(np.count_nonzero(taken)), tokens


def _targets(of_sources: Int64Array, num_tokens: int, seed: int) -> tuple[Int64Array, Int64Array]:
    """Return the tokens to take of each source, and a random number in [0, ONE) for each.

    Shares are rounded up or down at random, with the share of a token as the probability.
    """
    numbers = np.arange(2 * len(of_sources), dtype=np.uint64)
    draws = (keyed_hash(numbers, seed ^ SOURCE_SEED) >> np.uint64(32)).astype(np.int64)
    total = int(of_sources.sum())
    wanted = min(num_tokens, total)
    targets = [
        (wanted * tokens * ONE + draw * total) // (total * ONE) if total else 0
        for tokens, draw in zip(of_sources.tolist(), draws[::2].tolist(), strict=True)
    ]
    return np.array(targets, np.int64), draws[1::2].copy()

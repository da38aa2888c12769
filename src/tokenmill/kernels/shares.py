"""Loops that take documents in a random order until every source has given its share."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import BoolArray, Int32Array, Int64Array, UInt64Array
from tokenmill.kernels.compiled import compiled


@compiled
def fill_shares(
    keys: UInt64Array,
    number_bits: np.uint64,
    sources: Int32Array,
    lengths: Int32Array,
    targets: Int64Array,
    draws: Int64Array,
) -> BoolArray:
    """Return which documents are taken, shape (num_documents,).

    The last `number_bits` of each key are a document, and keys are in the order in which documents
    are taken. A source gives documents until it has given `targets` tokens. The document that
    reaches them is taken if enough of it is wanted, as the source's number in `draws` decides: from
    a 2^-32th of the number on.
    """
    taken = np.zeros(len(keys), np.bool_)
    given = np.zeros(len(targets), np.int64)
    last_bits = (np.uint64(1) << number_bits) - np.uint64(1)
    for i in range(len(keys)):
        document = np.int64(keys[i] & last_bits)
        source, length = sources[document], np.int64(lengths[document])
        missing = targets[source] - given[source]
        taken[document] = missing > (draws[source] * length) >> 32
        given[source] += length
    return taken

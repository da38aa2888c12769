"""Peer: seqpacker's optimised best-fit decreasing, through its fastest call from Python.

It refuses pieces longer than a sequence, so long documents are split before the clock starts.

    python seqpacker_obfd.py lengths.npy 2048
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import seqpacker


def main() -> None:
    lengths, length = np.load(sys.argv[1]).astype(np.int64), int(sys.argv[2])
    counts = -(-lengths // length)
    pieces = np.full(int(counts.sum()), length, np.int64)
    pieces[np.cumsum(counts) - 1] = lengths - (counts - 1) * length
    packer = seqpacker.Packer(length, "obfd")
    packer.pack_flat(pieces[:1000])
    started = time.perf_counter()
    _, offsets = packer.pack_flat(pieces)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "sequences": len(offsets) + 1}))


if __name__ == "__main__":
    main()

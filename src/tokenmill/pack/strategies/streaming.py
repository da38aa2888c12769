"""Best-fit into a bounded number of open sequences, in the order of the documents.

The same packing as `tokenmill.pack.streaming.StreamPacker`, which also takes data without an end.
"""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Segments, Sequences
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy
from tokenmill.pack.streaming import StreamPacker


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces in their order."""
    packer = StreamPacker(
        options.length, open_sequences=options.open_sequences, max_segments=options.max_segments
    )
    first, last = packer.push(pieces), packer.finish()
    both = Segments.joined([first.segments, last.segments])
    segments = Segments(
        both.documents.astype(np.int32), both.starts.astype(np.int32), both.lengths.astype(np.int32)
    )
    offsets = np.concatenate([first.offsets, last.offsets[1:] + first.offsets[-1]])
    return Sequences(segments, offsets)


STRATEGY = Strategy(pack)

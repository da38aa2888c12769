"""Few documents are packed by Python and many by compiled code: both make the same plan."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.kernels import interpreted
from tokenmill.packing.figures import Figures, Ledger
from tokenmill.packing.options import Packing, PackOptions
from tokenmill.packing.window import Window, pack_window

lengths_of_documents = st.lists(st.integers(1, 300), min_size=1, max_size=60)


def packed(lengths: list[int], options: PackOptions, most_steps: int) -> tuple[Any, Figures]:
    """Arrays of the sequences, and their figures."""
    window = Window(np.array(lengths, np.int32), np.arange(len(lengths), dtype=np.int32))
    ledger = Ledger(options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreted, "MOST_STEPS", most_steps)
        patch.setattr(interpreted, "_steps_taken", {})
        sequences = pack_window(window, options)
        ledger.add(sequences)
        figures = ledger.figures()
    segments, offsets = sequences.sequences.segments, sequences.sequences.offsets
    arrays = (offsets, segments.documents, segments.starts, segments.lengths)
    return [(array.dtype, array.tolist()) for array in arrays], figures


@pytest.mark.parametrize("name", get_args(Packing))
@settings(max_examples=25, deadline=None)
@given(lengths=lengths_of_documents, max_segments=st.sampled_from([None, 1, 3]))
def test_every_strategy(name: Packing, lengths: list[int], max_segments: int | None) -> None:
    limit = None if name == "order-preserving" else max_segments
    options = PackOptions(
        sequence_length=128, packing=name, max_segments=limit, ranks=4, smallest_bucket=16
    )
    assert packed(lengths, options, 10**9) == packed(lengths, options, 0)


@pytest.mark.parametrize(
    "policy",
    [
        {"long_documents": "sliding-window", "overlap": 9},
        {"at_cuts": "bos-and-eos", "segment_multiple": 4},
    ],
)
@settings(max_examples=25, deadline=None)
@given(lengths=lengths_of_documents)
def test_every_rule_for_long_documents(policy: dict[str, Any], lengths: list[int]) -> None:
    options = PackOptions(sequence_length=64, **policy)
    assert packed(lengths, options, 10**9) == packed(lengths, options, 0)

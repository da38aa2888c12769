"""Peer: TRL's best-fit decreasing with splitting.

By default only its planning: the part of `_pack_bfd` that counts fragments, sorts them and runs
the segment-tree loop is taken from the installed source, so that no tokens are moved. `--whole`
calls `pack_dataset(strategy="bfd_split")` on a dataset of that many tokens instead.

    python trl_bfd.py lengths.npy 2048 [--whole]
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import textwrap
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
import numpy as np
import pyarrow as pa
import trl
from trl import data_utils


def planner():
    """A function of lengths and sequence length, made of TRL's own text."""
    source = textwrap.dedent(inspect.getsource(data_utils._pack_bfd))
    start = source.index("ids = np.arange(len(examples))")
    stop = source.index("examples = pc.take(examples,")
    body = source[start:stop].replace("len(examples)", "len(lengths)")
    code = (
        "def plan(lengths, seq_length):\n"
        "    num_fragments = np.ceil(lengths / seq_length).astype(int)\n"
        "    ends = np.cumsum(num_fragments)\n"
        "    fragments = np.full(int(ends[-1]), seq_length, np.int32)\n"
        "    fragments[ends - 1] -= (-lengths % seq_length).astype(np.int32)\n"
        "    lengths = pa.array(fragments)\n"
        f"    {body}\n"
        "    return bins\n"
    )
    names = {**vars(data_utils), "pa": pa}
    exec(compile(code, "trl_planning", "exec"), names)
    return names["plan"]


def main() -> None:
    lengths, length = np.load(sys.argv[1]).astype(np.int64), int(sys.argv[2])
    datasets.disable_progress_bars()
    if "--whole" in sys.argv:
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = pa.array(np.arange(int(offsets[-1]), dtype=np.int32))
        rows = datasets.Dataset(
            pa.table({"input_ids": pa.LargeListArray.from_arrays(pa.array(offsets), tokens)})
        )
        started = time.perf_counter()
        packed = trl.pack_dataset(
            rows,
            length,
            strategy="bfd_split",
            map_kwargs={"keep_in_memory": True, "load_from_cache_file": False},
        )
    else:
        plan = planner()
        started = time.perf_counter()
        packed = plan(lengths, length)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "sequences": len(packed)}))


if __name__ == "__main__":
    main()

"""Write rows with MDSWriter, and print the seconds: write_mds.py OUT ROWS, an export as npy."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from streaming import MDSWriter

out, rows = sys.argv[1], [np.load(path) for path in sorted(Path(sys.argv[2]).glob("*.npy"))]
columns = {"tokens": f"ndarray:int32:{rows[0].shape[1]}"}
started = time.perf_counter()
with MDSWriter(out=out, columns=columns, hashes=["xxh3_128"]) as writer:
    for part in rows:
        for row in part:
            writer.write({"tokens": row})
os.sync()
print(time.perf_counter() - started)

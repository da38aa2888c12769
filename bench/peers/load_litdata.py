"""Peer: litData's `TokensLoader`, shuffled, as its page on pre-training shows it.

Chunks are of about as many tokens as there (2,049 * 8,012). Rows go in as tensors of uint16, the
narrowest type that it takes, so every chunk holds a whole number of rows: rows are what it counts
a chunk in, and it drops the rest. Its batches are uint16; `.long()` is what training does to them.
Its default shuffle is local: chunks, windows of 256 rows in a chunk, rows in a window.

    python load_litdata.py convert ROWS.bin 4096 FOLDER
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loading
import numpy as np
import torch
from litdata import StreamingDataLoader, StreamingDataset, TokensLoader, optimize

CHUNK_TOKENS = 2049 * 8012


def row(place: tuple[str, int, int]) -> torch.Tensor:
    """The row that stands at a place of the file."""
    path, length, number = place
    return torch.from_numpy(np.fromfile(path, "<u2", length, offset=2 * length * number))


class LitData(loading.Peer):
    def convert(self, rows: np.ndarray, folder: Path) -> None:
        count, length = rows.shape
        optimize(
            fn=row,
            inputs=[(str(rows.filename), length, number) for number in range(count)],
            output_dir=str(folder),
            chunk_size=CHUNK_TOKENS // length * length,
            item_loader=TokensLoader(block_size=length),
            num_workers=1,
            reorder_files=False,
        )
        (folder / "length").write_text(str(length))

    def open(self, folder: Path, batch_size: int, workers: int) -> Any:
        length = int((folder / "length").read_text())
        dataset = StreamingDataset(
            str(folder), item_loader=TokensLoader(block_size=length), shuffle=True
        )
        return StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers)

    def ids(self, batch: Any) -> Any:
        return batch.long()


if __name__ == "__main__":
    loading.main(LitData())

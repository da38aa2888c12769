"""Peer: MosaicML streaming (MDS), shuffled by its default algorithm, as llm-foundry uses it.

A row is one sample with one column, an array of uint16 ids; files are of its default size, 64 MiB.
A sample becomes a tensor of int64 in `__getitem__`, and a batch by the DataLoader's own collation.
`import streaming` imports torchvision for its data sets of images, and torchvision cannot be
imported beside a torch of another build (CPU here, CUDA there): an empty module stands in for it.

    python load_streaming.py convert ROWS.bin 4096 FOLDER
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

for name in ("torchvision", "torchvision.datasets", "torchvision.transforms.functional"):
    sys.modules[name] = module_from_spec(ModuleSpec(name, None))
sys.modules["torchvision.datasets"].VisionDataset = type("VisionDataset", (), {})
sys.modules["torchvision.transforms.functional"].to_tensor = None

# ruff: noqa: E402 - after the module that stands in
import loading
import numpy as np
import torch
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory


class Rows(StreamingDataset):
    def __getitem__(self, at: Any) -> torch.Tensor:
        return torch.from_numpy(super().__getitem__(at)["tokens"].astype(np.int64))


class Streaming(loading.Peer):
    def convert(self, rows: np.ndarray, folder: Path) -> None:
        with MDSWriter(out=str(folder), columns={"tokens": "ndarray:uint16"}) as writer:
            for row in rows:
                writer.write({"tokens": np.asarray(row)})

    def open(self, folder: Path, batch_size: int, workers: int) -> Any:
        clean_stale_shared_memory()  # what a run that was killed has left behind
        dataset = Rows(local=str(folder), shuffle=True, batch_size=batch_size)
        return StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers)

    def ids(self, batch: Any) -> Any:
        return batch


if __name__ == "__main__":
    loading.main(Streaming())

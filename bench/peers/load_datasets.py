"""Peer: rows in an Arrow file of Hugging Face `datasets`, read by PyTorch's `DataLoader`, shuffled.

Ids are stored as lists of int32, which is what `map` makes of input_ids; `with_format("torch")`
turns them into tensors of int64. A DataLoader keeps no state: to resume, torchdata's
`StatefulDataLoader` stands in for it, which is made for that.

    python load_datasets.py convert ROWS.bin 4096 FOLDER
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import loading
import numpy as np
import torch
from datasets import Dataset, Features, List, Value, load_from_disk


class Datasets(loading.Peer):
    def convert(self, rows: np.ndarray, folder: Path) -> None:
        def records() -> Any:
            for row in rows:
                yield {"input_ids": row.astype(np.int32)}

        features = Features({"input_ids": List(Value("int32"))})
        cache = folder.with_name(f"{folder.name}-cache")
        made = Dataset.from_generator(records, features=features, cache_dir=str(cache))
        made.save_to_disk(str(folder))
        shutil.rmtree(cache)

    def open(self, folder: Path, batch_size: int, workers: int) -> Any:
        loader = torch.utils.data.DataLoader
        if "stop" in sys.argv or "resume" in sys.argv:
            from torchdata.stateful_dataloader import StatefulDataLoader as loader  # noqa: N813
        rows = load_from_disk(str(folder)).with_format("torch")
        return loader(rows, batch_size=batch_size, shuffle=True, num_workers=workers)

    def ids(self, batch: Any) -> Any:
        return batch["input_ids"]


if __name__ == "__main__":
    loading.main(Datasets())

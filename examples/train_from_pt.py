"""The same training from exported files, for trainers that read tensors and know no loader.

    python examples/train_from_pt.py --interrupt-at 30
    python examples/train_from_pt.py

The rows are written once, in the order in which the loader gives them, so this prints the losses
that train.py prints. The place in the data is a number of rows, and training ends with the rows,
where the loader goes on in another order.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

try:
    import torch
    from torch.utils.data import ConcatDataset, DataLoader, StackDataset, Subset
except ImportError as error:
    raise SystemExit(f"{error}\nnext: pip install '.[torch]'") from error

import tokenmill
from corpus import PLAN
from training import (
    load_checkpoint,
    make_model,
    open_dataset,
    parse_options,
    save_checkpoint,
    train_step,
)

IGNORED = -100


def main() -> None:
    """Train from .pt files."""
    options = parse_options(__doc__)
    dataset = open_dataset(options)
    plan = options.plan or PLAN
    folder = options.out / f"rows-{plan}"
    if not folder.exists():
        tokenmill.export(dataset, folder, plan=plan, format="pt", labels="next")
    model, optimizer = make_model(dataset)

    checkpoint = options.out / "train_from_pt.pt"
    state = load_checkpoint(checkpoint, model, optimizer)
    next_row = 0
    if state is not None:
        next_row = json.loads(state)["next_row"]
        print(f"resumed at row {next_row}")

    first_step = next_row // options.batch_size
    batches = rows_from(folder, next_row, options.batch_size)
    for stored in islice(batches, max(options.stop - first_step, 0)):
        batch = {name: column.long() for name, column in stored.items()}  # ids may be uint16
        parts = tokenmill.micro_batches(batch, options.micro_batches)
        num_targets = int((batch["labels"] != IGNORED).sum())
        loss = train_step(model, optimizer, parts, num_targets)
        next_row += options.batch_size
        print(f"step {next_row // options.batch_size} loss {loss!r}", flush=True)

    save_checkpoint(checkpoint, model, optimizer, json.dumps({"next_row": next_row}))


def rows_from(folder: Path, first_row: int, batch_size: int) -> DataLoader:
    """Batches of the rows from one of them on; files are mapped into memory, not read."""
    files = [
        StackDataset(**torch.load(path, weights_only=True, mmap=True))
        for path in sorted(folder.glob("rows-*.pt"))
    ]
    rows = ConcatDataset(files)
    rest = Subset(rows, range(first_row, len(rows)))
    return DataLoader(rest, batch_size=batch_size, drop_last=True)


if __name__ == "__main__":
    main()

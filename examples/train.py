"""Train a small GPT on packed rows, stop, and go on with the same losses to the bit.

    python examples/train.py --interrupt-at 30    # builds a small dataset, stops after step 30
    python examples/train.py                      # goes on with step 31
    python examples/train.py --out elsewhere      # the same losses, without a stop

`--dataset demo/out/corpus --batch-size 4` trains on what `make demo` has built: rows of 2,048
tokens. To begin again, remove `train.pt` from the output folder.
"""

from __future__ import annotations

import json
from itertools import islice

import tokenmill
from training import (
    load_checkpoint,
    make_model,
    open_dataset,
    parse_options,
    save_checkpoint,
    train_step,
)


def main() -> None:
    """Train from the loader."""
    options = parse_options(__doc__)
    dataset = open_dataset(options)
    loader = dataset.loader(
        options.plan,
        batch_size=options.batch_size,
        epochs=None,
        labels="next",  # the model does not shift
        columns=("input_ids", "labels", "position_ids", "num_targets"),
    )
    model, optimizer = make_model(dataset)

    checkpoint = options.out / "train.pt"
    state = load_checkpoint(checkpoint, model, optimizer)
    if state is not None:
        loader.load_state_dict(json.loads(state))
        print(f"resumed after step {loader.step}")

    for batch in islice(loader, max(options.stop - loader.step, 0)):
        parts = tokenmill.micro_batches(batch, options.micro_batches)
        # With several ranks, this is to be the sum of num_targets over all of them.
        loss = train_step(model, optimizer, parts, batch["num_targets"])
        print(f"step {loader.step} loss {loss!r}", flush=True)

    save_checkpoint(checkpoint, model, optimizer, json.dumps(loader.state_dict()))


if __name__ == "__main__":
    main()

"""Train one layer of attention in JAX: batches without PyTorch, documents kept apart by segment.

python examples/train_in_jax.py --interrupt-at 30
python examples/train_in_jax.py    # continues with step 31
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import islice
from pathlib import Path

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise SystemExit(f"{error}\nnext: pip install jax") from error
import numpy as np

import tokenmill
from corpus import small_dataset

WIDTH = 64
Weights = dict[str, jax.Array]


def new_weights(vocab_size: int) -> Weights:
    """The same random weights on every run."""
    shapes = {"embedding": (vocab_size, WIDTH), "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {
        name: WIDTH**-0.5 * jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def loss_of(weights: Weights, batch: dict[str, jax.Array]) -> jax.Array:
    """The mean loss of all labels that are not -100."""
    x = weights["embedding"][batch["input_ids"]]  # (num_rows, row_length, WIDTH)
    query, key, value = jnp.split(x @ weights["qkv"], 3, axis=-1)
    segment = batch["segment_ids"]
    seen = jnp.tril(segment[:, :, None] == segment[:, None, :])
    scores = jnp.where(seen, query @ key.swapaxes(1, 2) / WIDTH**0.5, -1e9)
    x = x + jax.nn.softmax(scores) @ value @ weights["out"]
    chances = jax.nn.log_softmax(x @ weights["embedding"].T)
    labels = batch["labels"]
    trained = labels >= 0
    picked = jnp.take_along_axis(chances, jnp.where(trained, labels, 0)[..., None], axis=-1)
    return -jnp.sum(picked[..., 0] * trained) / jnp.sum(trained)


@partial(jax.jit, donate_argnums=0)
def train_step(weights: Weights, batch: dict[str, jax.Array]) -> tuple[Weights, jax.Array]:
    """One step of gradient descent."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, batch)
    return jax.tree.map(lambda weight, slope: weight - 1.0 * slope, weights, slopes), loss


def main() -> None:
    """Train; the weights and the state of the data are kept in the output folder."""
    parser = argparse.ArgumentParser(description="Train in JAX on packed rows.")
    parser.add_argument("--dataset", type=Path, help="a dataset with a plan; else a small one")
    parser.add_argument("--out", type=Path, default=Path("examples/out"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--interrupt-at", type=int, metavar="STEP", help="save and stop here")
    parser.add_argument("--batch-size", type=int, default=16, help="rows over all processes")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    dataset = tokenmill.open(options.dataset or small_dataset(options.out))
    batches = dataset.batches(
        global_batch_size=options.batch_size,
        rank=jax.process_index(),
        world_size=jax.process_count(),
        epochs=None,
        labels="next",
        columns=("input_ids", "labels", "segment_ids"),
    )
    weights = new_weights(dataset.manifest.tokenizer.largest_id + 1)
    saved, state = options.out / "jax.npz", options.out / "jax.json"
    if saved.exists():
        weights = {name: jnp.asarray(value) for name, value in np.load(saved).items()}
        batches.load_state_dict(json.loads(state.read_text()))
    stop = min(options.steps, options.interrupt_at or options.steps)
    for batch in islice(batches, max(stop - batches.step, 0)):
        weights, loss = train_step(weights, jax.device_put(batch))
        print(f"step {batches.step} loss {float(loss)!r}", flush=True)
    np.savez(saved, **weights)
    state.write_text(json.dumps(batches.state_dict()))


if __name__ == "__main__":
    main()

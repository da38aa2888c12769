"""Measure time and memory to make a FlexAttention BlockMask, with tokenmill and with PyTorch.

The row has documents of lognormal lengths (seed 0, the distribution of `packing.py`), or one
document. Mask and block size are the same for all, and so are the resulting masks:

- tokenmill: `torch_forms.block_mask`, from a Segmentation;
- create_block_mask: PyTorch's function with the same `mask_mod`;
- compiled: `torch.compile(create_block_mask)`, as its documentation recommends.

Every contender is a separate process. It makes one mask to warm up, then `--repeats` timed masks.
The time includes everything that a training step would wait for, from edges to tensors on the CPU.
Sizes that need too much memory are left out (PyTorch needs several times L x L bytes).

    python bench/masks.py --lengths 8192 32768 131072
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import measure

ELEMENTS_LIMIT = {"tokenmill": 1 << 40, "create_block_mask": 1 << 31, "compiled": 1 << 34}


def masks() -> dict[str, object]:
    from tokenmill.load.masks import Causal, Prefix, RandomBlocks, Sinks, Window

    return {
        "causal": Causal(),
        "window": Causal() & (Window(1024) | Sinks(4)),
        "prefix": Causal() | Prefix(),
        "random": Causal() & (Window(256) | RandomBlocks(64, 3, seed=0)),
    }


def make(contender: str, name: str, length: int, *, one: bool, repeats: int) -> None:
    """Make masks in this process, and print how long one takes and what it holds."""
    import numpy as np
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    from tokenmill.load.masks import Grid
    from tokenmill.load.masks.torch_forms import block_mask, mask_mod
    from tokenmill.load.rows.segmentation import Segmentation

    drawn = np.clip(np.rint(np.random.default_rng(0).lognormal(6.2, 1.1, length)), 1, None)
    edges = np.unique(np.append(np.minimum(np.cumsum(drawn), length), [0, length]))
    lengths = [length] if one else np.diff(edges).astype(int).tolist()
    made, mask = create_block_mask, masks()[name]
    if contender == "compiled":
        torch._dynamo.config.cache_size_limit = 64
        made = torch.compile(create_block_mask)

    def once() -> object:
        segmentation = Segmentation.of_lengths([lengths], length)
        grid = Grid(segmentation, prefix_lengths=segmentation.lengths // 2)
        if contender == "tokenmill":
            return block_mask(mask, grid)
        return made(mask_mod(mask, grid), 1, None, length, length, device="cpu")

    seconds = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        result = once()
        seconds.append(time.perf_counter() - started)
    tiles = [int(result.kv_num_blocks.sum()), int(result.full_kv_num_blocks.sum())]
    found = {"seconds": statistics.median(seconds[1:]), "first": seconds[0], "tiles": tiles}
    print(json.dumps({**found, "documents": len(lengths)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[8192, 32768, 131072])
    parser.add_argument("--masks", nargs="+", choices=list(masks()), default=list(masks()))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", action="store_true", help="one document instead of many")
    parser.add_argument("--make", choices=list(ELEMENTS_LIMIT), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        for name in options.masks:
            one, repeats = options.one, options.repeats
            make(options.make, name, options.lengths[0], one=one, repeats=repeats)
        return
    print(measure.machine(), measure.versions(["tokenmill", "torch", "numpy", "numba"]))
    for length in options.lengths:
        for name in options.masks:
            compare(length, name, options)


def compare(length: int, name: str, options: argparse.Namespace) -> None:
    def once(contender: str) -> Callable[[], tuple[dict, measure.Run]]:
        command = [sys.executable, __file__, "--make", contender, "--masks", name]
        command += ["--lengths", str(length), "--repeats", str(options.repeats)]
        command += ["--one"] * options.one

        def run() -> tuple[dict, measure.Run]:
            measured = measure.run(command)
            return json.loads(measured.output.strip().splitlines()[-1]), measured

        return run

    contenders = {
        name: once(name) for name, limit in ELEMENTS_LIMIT.items() if length * length <= limit
    }
    runs = measure.interleave(contenders, options.rounds)
    base = [found["seconds"] for found, _ in runs["tokenmill"]]
    tiles = {json.dumps(found["tiles"]) for group in runs.values() for found, _ in group}
    if len(tiles) > 1:
        raise SystemExit(f"contenders differ: {tiles}")
    rows = []
    for contender, group in runs.items():
        seconds = [found["seconds"] for found, _ in group]
        rows.append(
            [
                contender,
                f"{statistics.median(seconds) * 1e3:.1f}",
                f"{measure.ratio(seconds, base):.1f}",
                f"{max(run.peak_bytes for _, run in group) / 1e9:.2f}",
                f"{statistics.median(found['first'] for found, _ in group):.2f}",
            ]
        )
    found = runs["tokenmill"][0][0]
    partial, full = found["tiles"]
    print(f"\n## {name}, {length:,} tokens, {found['documents']} documents, ", end="")
    print(f"{partial:,} partial and {full:,} full tiles\n")
    header = ["maker", "ms", "x tokenmill", "peak GB", "first, s"]
    print(measure.table(header, rows), flush=True)


if __name__ == "__main__":
    main()

"""Measure the time to reach a step of a mixture: one pass, many short ones, a resume, a jump back.

The two sources are the same plan of a dataset, endless, with shares of 3 and 1. Every step takes
the same time. A jump back repeats the steps from the nearest checkpoint on.

    python bench/mixture.py --dataset CORPUS
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import tokenmill
from loader_runs import make_plan


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--plan", help="default: best-fit-LENGTH, made unless it is there")
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    dataset, steps = tokenmill.open(options.dataset), options.steps
    plan = options.plan or make_plan(options.dataset, options.sequence_length)

    def mixture() -> tokenmill.Batches:
        sources = [
            tokenmill.MixtureSource.of(dataset, plan, share=share, epochs=None) for share in (3, 1)
        ]
        return tokenmill.mix_batches(sources, global_batch_size=8)

    list(islice(mixture(), 10))  # compiles
    show(f"{steps} batches in one pass", lambda: list(islice(mixture(), steps)), steps)
    batches = mixture()
    passes = lambda: [list(islice(batches, 10)) for _ in range(steps // 10)]  # noqa: E731
    show(f"{steps} batches in passes of 10", passes, steps)
    for step in (steps // 100, steps // 10, steps):
        state = batches.state_dict(step)
        resumed = mixture()
        resumed.load_state_dict(state)
        show(f"the first 10 batches of a resume at {step}", partial(list, islice(resumed, 10)), 10)
    show(f"back to step {steps // 2}", partial(batches.batch, steps // 2), 1)


def show(what: str, work: Callable[[], object], steps: int) -> None:
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    print(f"{what:<45} {seconds:9.3f} s {seconds / steps * 1000:9.3f} ms a step")


if __name__ == "__main__":
    main()

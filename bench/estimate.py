"""Compare estimates with a build, over many seeds: errors, coverage of the intervals, seconds.

    python bench/estimate.py INPUT... --tokenizer tokenizer.json --work WORK [--seeds 20]

The true values come from a build in WORK, which is kept. With `--truth WORK`, other inputs with the
same documents can be compared with it, such as a Parquet version of the corpus.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import tokenmill
from tokenmill.api.building import recipe
from tokenmill.reports.estimate import estimate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--work", type=Path, help="folder for the build")
    parser.add_argument("--truth", type=Path, help="a finished build of the same documents")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    truth = options.truth or options.work
    if truth is None:
        parser.error("--work or --truth is needed")
    if not options.truth:
        tokenmill.build(options.inputs, options.tokenizer, truth)
    totals = tokenmill.Dataset(truth).manifest.totals
    wanted = recipe(options.inputs, options.tokenizer, "(not written)")
    found, seconds = [], []
    for seed in range(options.seeds):
        started = time.perf_counter()
        found.append(estimate(wanted, seed=seed))
        seconds.append(time.perf_counter() - started)
    print(
        f"{len(found)} seeds; median {statistics.median(seconds):.1f} s, most {max(seconds):.1f} s"
    )
    for name, true in (("documents", totals.records), ("tokens", totals.tokens)):
        errors = [getattr(one, name) / true - 1 for one in found]
        intervals = [getattr(one, f"{name}_interval") for one in found]
        held = sum(low <= true <= high for low, high in intervals)
        width = statistics.median((high - low) / 2 / true for low, high in intervals)
        print(
            f"{name:>9}: true {true:,}; largest error {max(map(abs, errors)):.1%}, "
            f"mean {statistics.mean(errors):+.1%}; interval ± {width:.1%} holds it {held} times"
        )


if __name__ == "__main__":
    main()

"""Measure `tokenmill find` against its bounds: reading token ids, and `bytes.find` over the text.

    python bench/finding.py --dataset corpus/ --times 18

The dataset is searched as a view that has it `--times` times. The bounds are measured on the
dataset alone, one after the other with a search of it, in one process and on one core.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

import tokenmill
from measure import machine, run, table
from tokenmill.store.dataset import Dataset
from tokenmill.store.selecting.finding import Finder
from tokenmill.store.selecting.matching import matcher_of
from tokenmill.store.selecting.places import places_of
from tokenmill.store.selecting.texts import Texts

RARE, COMMON, PATTERN = "of the United States of A", "the", r"\b[A-Z]\w+ of [A-Z]\w+\b"


def main() -> None:
    """Measure the bounds and searches on the dataset, then the command on the view."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--times", type=int, default=18)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    dataset = Dataset(options.dataset)
    texts = Texts(dataset)
    data = [block for place in places_of([dataset]) for block in copied(texts, place)]
    print(f"{dataset.num_tokens:,} tokens, {sum(map(len, data)) / 1e6:.0f} MB of text")
    strings = some_strings(data, 10_000)
    steps: dict[str, Callable[[], object]] = {
        "reading ids": lambda: [int(np.max(shard.ids)) for shard in released(dataset)],
        "bytes.find": lambda: [block.find(RARE.encode()) for block in data],
        "decoding": lambda: [len(b.data) for p in places_of([dataset]) for b in pass_of(texts, p)],
        "find, rare": search(dataset, [RARE]),
        "find, common": search(dataset, [COMMON]),
        "find, regex": search(dataset, [PATTERN], regex=True),
        "find, 10,000 strings": search(dataset, strings, count=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for name in [*steps, *list(steps) * options.rounds]:  # the first round warms up
        start = time.perf_counter()
        steps[name]()
        seconds[name].append(time.perf_counter() - start)
    best = {name: statistics.median(each[1:]) for name, each in seconds.items()}
    bound = best["reading ids"] + best["bytes.find"]
    rows = [
        [name, f"{each:.3f} s", f"{dataset.num_tokens / each / 1e6:,.0f}", f"{each / bound:.1f}"]
        for name, each in best.items()
    ]
    print(table(["step", "seconds", "million tokens/s", "times the bound"], rows))
    with tempfile.TemporaryDirectory() as folder:
        view = tokenmill.select([dataset] * options.times, f"{folder}/view")
        for name, each in (("dataset", options.dataset), ("view", f"{folder}/view")):
            words = [sys.executable, "-m", "tokenmill", "find", each, RARE, "--count"]
            done = run(words)
            print(
                f"{name}: {Dataset(each).num_tokens:,} tokens, {done.seconds:.1f} s, "
                f"{done.cpu_seconds:.1f} s of CPU, {done.peak_bytes / 1e6:.0f} MB"
            )
        del view


def pass_of(texts: Texts, place: object) -> object:
    """The blocks of a shard, whose memory is then released."""
    yield from texts.blocks(place, place.selected)
    place.shard.release()


def copied(texts: Texts, place: object) -> list[bytes]:
    """The text of a shard."""
    return [block.data.tobytes() for block in pass_of(texts, place)]


def released(dataset: Dataset) -> object:
    """The shards of a dataset, each released after use."""
    for shard in dataset.shards:
        yield shard
        shard.release()


def search(
    dataset: Dataset, strings: list[str], *, regex: bool = False, count: bool = False
) -> Callable[[], object]:
    """A search whose tokenizer is open: how long that takes does not depend on the dataset."""
    tell = None if count else lambda found: None
    finder = Finder(dataset, matcher_of(strings, regex=regex), tell=tell)
    return lambda: finder.run(None)


def some_strings(data: list[bytes], count: int) -> list[str]:
    """Strings of 50 bytes from the text, where they are valid; every second one is changed."""
    draw, found = random.Random(0), []
    while len(found) < count:
        block = draw.choice(data)
        start = draw.randrange(max(len(block) - 50, 1))
        text = block[start : start + 50].decode(errors="ignore")
        found.append(text if len(found) % 2 else f"{text[:25]}\x00{text[25:]}")
    return found


if __name__ == "__main__":
    main()

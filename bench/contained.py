"""Measure `tokenmill select --without-contained` on real text.

    python bench/contained.py corpus/*.jsonl.zst --tokenizer tokenizer.json --unseen sentences.txt

The dataset is given to the command several times, so that its start counts little. The benchmark is
sentences of the corpus, and lines of another file. `text pass` decodes the
documents and does nothing with them. `set of tuples` is what one would write in Python: it has the
same text, normalizes it with `str.translate`, and looks up each run in a set. Both must find the
same documents.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tokenmill
from measure import Run, machine, run, table
from tokenmill.encode.words.compared import NUM_CHARACTERS, WITHOUT_SPACES, image_of
from tokenmill.store.dataset import Dataset
from tokenmill.store.selecting.places import places_of
from tokenmill.store.selecting.texts import Texts

LENGTH = 13


def main() -> None:
    """Build a dataset of the inputs and measure each way to clean it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--unseen", required=True, help="a file with a sentence in each line")
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--sentences", type=int, nargs="+", default=[1_000, 100_000])
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenmill.build(options.inputs, options.tokenizer, folder / "data", id_field="id")
        dataset = Dataset(folder / "data")
        texts = list(decoded(dataset))
        size = sum(map(len, texts)) / 1e6
        print(f"{dataset.num_documents:,} documents, {size:.0f} MB of text, {options.copies} times")
        rows = [row("text pass", size, seconds_of_pass(dataset), 0)]
        rows.append(measured(folder, options.copies, size, "select, no question", [])[0])
        for number in options.sentences:
            lines = [*sentences(texts, number), *Path(options.unseen).read_bytes().splitlines()]
            (folder / "benchmark.txt").write_bytes(b"\n".join(lines))
            question = ["--without-contained", str(folder / "benchmark.txt")]
            of = f"{len(lines):,} texts"
            found, view = measured(
                folder, options.copies, size, f"--without-contained, {of}", question
            )
            start = time.process_time()
            kept = plain(texts, lines)
            seconds = time.process_time() - start
            chosen = [each for shard in view.shards for each in shard.selected.tolist()]
            assert chosen == kept * options.copies
            rows += [found, row(f"set of tuples, {of}", size, seconds, 0)]
            print(f"{of}: {len(kept) - sum(kept):,} documents share a run")
        print(table(["", "CPU", "MB of text/s", "memory"], rows))


def row(name: str, size: float, seconds: float, peak_bytes: int) -> list[str]:
    """A row of the table."""
    memory = f"{peak_bytes / 1e6:.0f} MB" if peak_bytes else ""
    return [name, f"{seconds:.1f} s", f"{size / seconds:.0f}", memory]


def decoded(dataset: Dataset) -> Iterator[bytes]:
    """Yield the text of each document."""
    texts = Texts(dataset)
    for place in places_of([dataset]):
        for block in texts.blocks(place, place.selected):
            edges = block.offsets.tolist()
            yield from (block.data[a:b].tobytes() for a, b in itertools.pairwise(edges))


def seconds_of_pass(dataset: Dataset) -> float:
    """Decode all documents; the first pass compiles."""
    texts = Texts(dataset)
    for _ in range(2):
        start = time.process_time()
        for place in places_of([dataset]):
            for _ in texts.blocks(place, place.selected):
                pass
    return time.process_time() - start


def measured(
    folder: Path, copies: int, size: float, name: str, question: list[str]
) -> tuple[list[str], tokenmill.Dataset]:
    """Run the command twice; the first time may compile."""
    for number in range(2):
        out = folder / f"view-{len(list(folder.iterdir()))}-{number}"
        words = ["select", *[str(folder / "data")] * copies, "--out", str(out), *question]
        done: Run = run([sys.executable, "-m", "tokenmill", *words])
    return row(name, size * copies, done.cpu_seconds, done.peak_bytes), tokenmill.open(out)


def sentences(texts: list[bytes], count: int) -> Iterator[bytes]:
    """Yield random sentences of 80 to 400 bytes."""
    draw = random.Random(0)
    while count:
        text = draw.choice(texts)
        found = [s for s in re.split(rb"(?<=[.!?])\s+|\n", text) if 80 < len(s) < 400]
        if found:
            yield draw.choice(found)
            count -= 1


def plain(texts: list[bytes], lines: list[bytes]) -> list[bool]:
    """Return which texts share no run with a line."""
    images = {code: image_of(chr(code)) for code in range(NUM_CHARACTERS)}
    images |= {code: " " for code in range(NUM_CHARACTERS) if chr(code).isspace()}
    for codes in WITHOUT_SPACES:
        images |= {code: f" {images[code]} " for code in codes if images[code]}

    def runs(text: bytes) -> Iterator[tuple[str, ...]]:
        words = text.decode(errors="ignore").translate(images).split()
        return zip(*(words[i:] for i in range(LENGTH)), strict=False)

    known = {each for line in lines for each in runs(line)}
    return [known.isdisjoint(runs(text)) for text in texts]


if __name__ == "__main__":
    main()

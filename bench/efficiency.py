"""Measure what packing saves, with `tokenmill bench packing` on the dataset of the demo.

These commands make the tables of docs/explanation/efficiency.md:

    python bench/efficiency.py --packing all
    python bench/efficiency.py --packing all --sequence-length 8192

For your own dataset, run `tokenmill bench packing DATASET` with the same options.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import measure
import tokenmill
from tokenmill.cli import main

PACKAGES = ("tokenmill", "numpy", "numba", "torch")


def library_dataset(work: Path) -> Path:
    """The dataset of `make demo`."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from demo.demo import train_tokenizer, write_corpus

    paths = write_corpus(work / "data")
    train_tokenizer(work / "tokenizer.json")
    tokenmill.build(paths, work / "tokenizer.json", work / "corpus")
    return work / "corpus"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(measure.machine(), measure.versions(PACKAGES), file=sys.stderr)
        sys.exit(main(["bench", "packing", str(library_dataset(Path(folder))), *sys.argv[1:]]))

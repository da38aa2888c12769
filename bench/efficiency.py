"""What packing saves on Python's standard library: `tokenmill bench packing` on the demo's dataset.

The tables of docs/explanation/efficiency.md are made with

    python bench/efficiency.py --packing all
    python bench/efficiency.py --packing all --sequence-length 8192

On a dataset of your own, call `tokenmill bench packing DATASET`; options are the same.
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

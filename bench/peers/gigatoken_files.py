"""Peer: gigatoken with its own file reader, the shortest script a user can write around it.

`encode_files` reads, parses and encodes everything on all cores and keeps all ids in memory; the
ids and the offsets then go to disk with `numpy.tofile`. No end-of-text token, no index, no check:
less work than any of the others do, so this is the hardest peer.

    python gigatoken_files.py --tokenizer tokenizer.json --out DIR a.jsonl b.jsonl
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gigatoken
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("inputs", nargs="+", help="plain .jsonl or .jsonl.zst files")
    parser.add_argument("--tokenizer", required=True, help="a tokenizer.json of at most 65,536 ids")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--field", default="text")
    options = parser.parse_args()

    tokenizer = gigatoken.Tokenizer.from_json(Path(options.tokenizer).read_text("utf-8"))
    layout = tokenizer.encode_files(
        gigatoken.JsonlFileSource(options.inputs, field=options.field), parallel=True
    ).layout
    ids = np.asarray(layout.content.data)
    offsets = np.asarray(layout.offsets.data)

    options.out.mkdir(parents=True, exist_ok=True)
    ids.astype(np.uint16).tofile(options.out / "tokens.bin")
    offsets.tofile(options.out / "offsets.bin")
    print(f"documents {len(offsets) - 1} tokens {len(ids)}")


if __name__ == "__main__":
    main()

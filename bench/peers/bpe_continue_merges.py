"""Peer: bpe-continue, as its documentation shows it: texts in memory, a tokenizer.json out.

python bpe_continue_merges.py --tokenizer gpt2.json --add 3000 --out extended.json FILE ...
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bpe_continue import continue_training
from tokenizers import Tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="text files; a line is a document")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--add", type=int, required=True)
    parser.add_argument("--min-frequency", type=int, default=2)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    texts = [line for path in options.files for line in path.read_text("utf-8").split("\n")]
    base = Tokenizer.from_file(options.tokenizer)
    extended = continue_training(
        base,
        texts=texts,
        vocab_size=base.get_vocab_size() + options.add,
        min_frequency=options.min_frequency,
        show_progress=False,
    )
    extended.save(options.out)


if __name__ == "__main__":
    main()

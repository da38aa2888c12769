"""Train vocabularies of three sizes from one count of words, and compare them on other text.

python examples/train_tokenizers.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tokenmill
from corpus import source_files

SIZES = (512, 1024, 4096)


def main() -> None:
    """Train on all files but those of `json`, and compare on these."""
    parser = argparse.ArgumentParser(description="Train and compare tokenizers.")
    parser.add_argument("--out", type=Path, default=Path("examples/out/tokenizers"))
    options = parser.parse_args()
    files = source_files()
    held_out = [path for path in files if path.parent.name == "json"]
    counts = options.out / "counts"
    tokenmill.count_words([path for path in files if path not in held_out], counts, split="gpt2")
    folders = [options.out / f"vocabulary-{size}" for size in SIZES]
    for size, folder in zip(SIZES, folders, strict=True):
        tokenmill.train_tokenizer(counts, folder, vocabulary=size, overwrite=True)
    for found in tokenmill.report_tokenizers(folders, held_out).tokenizers:
        bytes_per_token = found.texts.bytes_per_token
        print(
            f"{found.tokenizer}: {bytes_per_token.value:.3f} bytes a token on text it has not seen,"
            f" between {bytes_per_token.low:.3f} and {bytes_per_token.high:.3f}"
        )


if __name__ == "__main__":
    main()

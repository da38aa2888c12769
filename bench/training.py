"""Compare tokenizer training from compressed JSON Lines with `BpeTrainer`, as whole processes.

Both read the same texts, cut words as GPT-2 does, and learn the same merges, which is checked.

    python bench/training.py --corpus corpus/*.jsonl.zst --vocabulary 32000 --rounds 1

The library's trainer is quadratic in the length of a word, so `--max-characters` leaves long
documents out for both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from backports import zstd

import measure

THEIRS = """
import json, sys
from backports import zstd
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

out, vocabulary, *paths = sys.argv[1:]

def texts():
    for path in paths:
        with zstd.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]

tokenizer = tokenizers.Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=int(vocabulary), special_tokens=["<|endoftext|>"],
                              initial_alphabet=alphabet, show_progress=False)
tokenizer.train_from_iterator(texts(), trainer)
tokenizer.save(out)
"""


def shorter(paths: list[str], folder: Path, longest: int) -> list[str]:
    """Copies of the files without long documents."""
    copies = []
    for path in map(Path, paths):
        copy = folder / path.name
        with zstd.open(path, "rt", encoding="utf-8") as lines, zstd.open(copy, "wt") as kept:
            kept.writelines(line for line in lines if len(json.loads(line)["text"]) <= longest)
        copies.append(str(copy))
    return copies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", nargs="+", required=True)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--max-characters", type=int, default=1 << 40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = shorter(options.corpus, folder, options.max_characters)
        ours = [sys.executable, "-m", "tokenmill", "tokenizer", "train", *corpus]
        ours += ["--split", "gpt2", "--vocabulary", str(options.vocabulary), "--overwrite"]
        theirs = [sys.executable, "-c", THEIRS, str(folder / "hf.json"), str(options.vocabulary)]
        commands = {
            "tokenmill": [*ours, "--out", str(folder / "T")],
            "tokenizers": [*theirs, *corpus],
        }
        for number in range(options.rounds):
            for tool, command in commands.items():
                found = measure.run(command)
                print(
                    f"round {number + 1}  {tool:<11} {found.seconds:7.1f} s wall "
                    f"{found.cpu_seconds:7.1f} s CPU {found.peak_bytes / 1e6:7.0f} MB",
                    flush=True,
                )
        made = json.loads((folder / "T" / "tokenizer.json").read_text())["model"]["merges"]
        known = json.loads((folder / "hf.json").read_text())["model"]["merges"]
        equal = sum(a == b for a, b in zip(made, known, strict=False))
        print(f"{equal:,} of {len(known):,} merges are equal, in order")


if __name__ == "__main__":
    main()

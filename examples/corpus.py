"""A small dataset from text that every machine has: some packages of Python's standard library.

    python examples/corpus.py examples/out    # about 300,000 tokens, packed into rows of 256

Blank lines separate documents, so a document is a function, a method or a paragraph: they are
short and of very different lengths, which is what packing is for.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import tokenmill

PACKAGES = ("collections", "email", "http", "json", "logging")
VOCABULARY = 1024
ROW_LENGTH = 256
PLAN = f"best-fit-{ROW_LENGTH}"
"""The name of its plan."""


def small_dataset(folder: Path) -> Path:
    """The dataset in `folder`, built now if it is not there yet."""
    corpus = folder / "corpus"
    if not (corpus / "manifest.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        tokenmill.build(
            source_files(),
            tokenizer=train_tokenizer(folder / "tokenizer.json"),
            out=corpus,
            separator="\n\n",
            sequence_length=ROW_LENGTH,
        )
    return corpus


def source_files() -> list[Path]:
    """The .py files of some packages, in the same order on every machine."""
    library = Path(sysconfig.get_path("stdlib"))
    return [path for package in PACKAGES for path in sorted((library / package).glob("*.py"))]


def train_tokenizer(
    path: Path,
    texts: list[Path] | None = None,
    special_tokens: tuple[str, ...] = ("<|endoftext|>",),
) -> Path:
    """A small byte-level BPE, trained on the corpus itself, or on other files."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(text) for text in texts or source_files()], trainer)
    tokenizer.save(str(path))
    return path


if __name__ == "__main__":
    print(small_dataset(Path(sys.argv[1])))

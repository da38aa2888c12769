"""The same corpus for the trainer of the `tokenizers` library and for ours."""

from __future__ import annotations

import json
import sysconfig
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from tokenmill.encode import encodings
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.merges import Merges

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
SPACES = pre_tokenizers.WhitespaceSplit()
BYTES = {character: byte for byte, character in enumerate(encodings.byte_symbols())}

Learnt = tuple[dict[str, int], list[tuple[str, str]]]
"""Ids of tokens, and merges."""


def words_of(texts: Iterable[str], pre_tokenizer: Any = BYTE_LEVEL) -> WordCounts:
    counts: Counter[bytes] = Counter()
    for text in texts:
        for word, _ in pre_tokenizer.pre_tokenize_str(text):
            spelled = pre_tokenizer is BYTE_LEVEL
            counts[bytes(BYTES[c] for c in word) if spelled else word.encode()] += 1
    return WordCounts.of(counts)


def trained(texts: Iterable[str], pre_tokenizer: Any = BYTE_LEVEL, **options: Any) -> Any:
    """A tokenizer trained by the library."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if pre_tokenizer is BYTE_LEVEL:
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(show_progress=False, **options)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def library(texts: Iterable[str], pre_tokenizer: Any = BYTE_LEVEL, **options: Any) -> Learnt:
    """What the library learns."""
    model = json.loads(trained(texts, pre_tokenizer, **options).to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def ours(merges: Merges) -> Learnt:
    """What we learn, spelled alike."""
    strings = merges.strings()
    pairs = [(strings[left], strings[right]) for left, right in merges.pairs.tolist()]
    return {string: i for i, string in enumerate(strings)}, pairs


def encoder(merges: Merges, pre_tokenizer: Any = BYTE_LEVEL) -> Any:
    """The finished tokenizer."""
    vocab, pairs = ours(merges)
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, pairs))
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def standard_library(num_files: int) -> Sequence[str]:
    """Source code that comes with every Python."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:num_files]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths]

"""Merges equal those of the `tokenizers` library, and the corpus is as long as they say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from tokenmill.encode import encodings
from tokenmill.vocabulary.bpe.learning import learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.symbols import byte_symbols
from tokenmill.words.counts import WordCounts

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
BYTES = {character: byte for byte, character in enumerate(encodings.byte_symbols())}


def byte_words(texts: Iterable[str]) -> WordCounts:
    counts: Counter[bytes] = Counter()
    for text in texts:
        for word, _ in BYTE_LEVEL.pre_tokenize_str(text):
            counts[bytes(BYTES[character] for character in word)] += 1
    return WordCounts.of(counts)


def library(texts: Iterable[str], **options: Any) -> Any:
    """Vocabulary and merges that the library learns from texts, byte-level."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = BYTE_LEVEL
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False, **options)
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def ours(merges: Merges) -> Any:
    strings = merges.strings()
    pairs = [(strings[left], strings[right]) for left, right in merges.pairs.tolist()]
    return {string: i for i, string in enumerate(strings)}, pairs


def test_merges_of_a_few_words() -> None:
    texts = ["low lower newest widest", "aaaa abab aaaaaaa"] * 3
    merges = learn_merges(byte_words(texts), byte_symbols(), MergeOptions(vocabulary_size=280))

    assert ours(merges) == library(texts, vocab_size=280)

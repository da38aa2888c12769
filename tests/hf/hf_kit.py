"""The usual recipe for `dataset.map`, throwaway tokenizers of all kinds, and small datasets."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import datasets
import tokenizers
import transformers
from tokenizers import models, pre_tokenizers, processors, trainers

EOT = "<|endoftext|>"
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "a",
    "Ein Text mit Umlauten: äöü, und einem Zeilenende.\n",
    "def f(x):\n    return x + 1\n" * 7,
    "日本語のテキスト と emoji 😀 " * 5,
    "abc bc a " * 40,
    " ",
]


def options(context_length: int, overlap: int = 0, **others: Any) -> dict[str, Any]:
    """A configuration that shows no progress, and appends no end-of-document token."""
    return {
        "context_length": context_length,
        "overlap": overlap,
        "show_progress": False,
        "append_eos": False,
        **others,
    }


@functools.cache
def _trained() -> str:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[EOT, "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    return str(tokenizer.to_str())


def bare_tokenizer(before: int = 0, after: int = 0) -> tokenizers.Tokenizer:
    """400 byte-level ids; <|endoftext|> is 0, and <s> (1) and </s> (2) may stand around a text."""
    tokenizer = tokenizers.Tokenizer.from_str(_trained())
    if before or after:
        template = " ".join(["<s>"] * before + ["$A"] + ["</s>"] * after)
        specials = [("<s>", 1), ("</s>", 2)]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=specials
        )
    return tokenizer


def fast_tokenizer(before: int = 0, after: int = 0, **others: Any) -> Any:
    """The same for `transformers`, with <|endoftext|> as end-of-document and padding token."""
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bare_tokenizer(before, after),
        **{"eos_token": EOT, "pad_token": EOT, **others},
    )


class Letters:
    """A tokenizer in Python: a character's code, at most 999."""

    eos_token_id = 1000

    def encode(self, text: str) -> list[int]:
        return [min(ord(character), 999) for character in text]


def recipe(tokenizer: Any, texts: Sequence[str], length: int, overlap: int) -> dict[str, Any]:
    """What the usual function returns, with labels made in a loop."""
    found = tokenizer(
        list(texts),
        truncation=True,
        max_length=length,
        stride=overlap,
        return_overflowing_tokens=True,
        padding="max_length",
    )
    pairs = zip(found["input_ids"], found["attention_mask"], strict=True)
    labels = [[i if seen else -100 for i, seen in zip(*pair, strict=True)] for pair in pairs]
    return {
        "input_ids": found["input_ids"],
        "attention_mask": found["attention_mask"],
        "labels": labels,
    }


def dataset_of(texts: Sequence[str | None], **columns: Any) -> datasets.Dataset:
    """A dataset in memory, whose texts may all be null."""
    kinds = {"text": datasets.Value("string")}
    made = datasets.Dataset.from_dict({"text": list(texts)}, datasets.Features(kinds))
    for name, values in columns.items():
        made = made.add_column(name, values)
    return made


def contents(dataset: Any) -> dict[str, Any]:
    """All columns as lists of lists."""
    rows = list(dataset)
    names = ("input_ids", "attention_mask", "labels")
    return {name: [[int(i) for i in row[name]] for row in rows] for name in names}

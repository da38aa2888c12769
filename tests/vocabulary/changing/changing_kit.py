"""Words and tokenizers for the tests of extending and trimming."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec
from hypothesis import strategies as st
from tokenizers import Tokenizer

from encode.tokenizer_kit import as_file
from tokenmill.encode.splitters import load_splitter
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import split_of
from tokenmill.encode.words.table import WordTable
from tokenmill.vocabulary.changing.base import Base, open_base

Json = dict[str, Any]

texts_of_few_letters = st.lists(
    st.text(alphabet="abc é", min_size=1, max_size=8).map(str.strip).filter(bool),
    min_size=1,
    max_size=12,
)
"""Texts in which ties and overlaps are dense."""


def opened(document: Json) -> Base:
    """A tokenizer.json as it is extended and trimmed."""
    return open_base(as_file(document))


def counted(base: Base, texts: list[str]) -> WordCounts:
    """The words of texts, as the tokenizer's own steps cut them."""
    table = WordTable()
    load_splitter(split_of(base.document), "library", 1 << 20).count(texts, table)
    return table.take()


def library(document: Json) -> Tokenizer:
    """The tokenizer in the `tokenizers` library; special tokens in texts are text."""
    tokenizer = Tokenizer.from_str(msgspec.json.encode(document).decode())
    tokenizer.encode_special_tokens = True
    return tokenizer


def tokens_of(document: Json, text: str) -> list[str]:
    """A text's tokens, as they are spelled."""
    encoded: list[str] = library(document).encode(text, add_special_tokens=False).tokens
    return encoded


def boundaries(tokens: list[str]) -> set[int]:
    """Where tokens end, counted in the characters that they are spelled with."""
    return set(accumulate(map(len, tokens)))

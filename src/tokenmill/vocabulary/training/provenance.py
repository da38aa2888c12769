"""`train.json`: what a tokenizer was trained on and how, and the digests of its files.

It is written last, so a folder that holds one is complete. It names no path, no time and no
machine: equal counts, options and versions give the same bytes.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.store.canonical import read_sealed
from tokenmill.store.manifest import Count, FileEntry

TRAINING_NAME = "train.json"
TRAINING_FORMAT = "tokenmill-training"
TRAINING_VERSION = 1


class CountsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The word counts that were learnt from."""

    counts_id: str
    weights: dict[str, Count]
    """Of each group."""
    words: Count
    """Unique ones, as everything below with weights."""
    occurrences: Count
    bytes: Count
    words_left_out: Count
    """Rare words that counting left out."""
    bytes_left_out: Count


class LongToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is longer than most."""

    characters: Count
    start: str
    """Its first characters."""


class SizeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One vocabulary, measured on the words that it was learnt from."""

    vocabulary: Count
    tokens: Count
    """Of the whole corpus."""
    unused: Count
    """Tokens that the corpus never needs; special tokens do not count."""
    fallback_bytes: Count
    """Bytes of the corpus in tokens that are no whole characters, or that are unknown."""
    longest: list[LongToken]


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a tokenizer came to be."""

    format: str = TRAINING_FORMAT
    format_version: int = TRAINING_VERSION
    options: dict[str, Any]
    split: dict[str, Any]
    """Normalizer and pre-tokenizer."""
    special_ids: dict[str, Count]
    counts: CountsEntry
    sizes: list[SizeEntry]
    """The largest vocabulary first."""
    curve: list[tuple[Count, Count]]
    """Vocabulary size and tokens of the whole corpus, for models that know it for every size."""
    versions: dict[str, str]
    files: list[FileEntry]
    digest: str = ""


def versions(*libraries: str) -> dict[str, str]:
    """Installed versions of the libraries that decide the result."""
    return {name: importlib.metadata.version(name) for name in sorted(("tokenmill", *libraries))}


def read_training(folder: Path) -> Training:
    """What a folder says of its tokenizer.

    Raises:
        VerificationError: there is nothing, or it is damaged.
    """
    path = folder / TRAINING_NAME
    return read_sealed(path, Training, (TRAINING_FORMAT, TRAINING_VERSION))

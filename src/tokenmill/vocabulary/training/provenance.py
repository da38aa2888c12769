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
    """The word counts used for training."""

    counts_id: str
    weights: dict[str, Count]
    """Weight of each group."""
    words: Count
    """Unique words. This and the numbers below include weights."""
    occurrences: Count
    bytes: Count
    words_left_out: Count
    """Rare words left out when counting."""
    bytes_left_out: Count


class LongToken(msgspec.Struct, frozen=True, kw_only=True):
    """One of the longest tokens."""

    characters: Count
    start: str
    """Its first characters."""


class SizeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one vocabulary on its training words."""

    vocabulary: Count
    tokens: Count
    """Tokens of the whole corpus."""
    unused: Count
    """Tokens that never occur in the corpus, without special tokens."""
    fallback_bytes: Count
    """Bytes of the corpus in unknown tokens, or in tokens that are not whole characters."""
    longest: list[LongToken]


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record of a training, stored as `train.json`."""

    format: str = TRAINING_FORMAT
    format_version: int = TRAINING_VERSION
    options: dict[str, Any]
    split: dict[str, Any]
    """The split: normalizer and pre-tokenizer."""
    special_ids: dict[str, Count]
    counts: CountsEntry
    sizes: list[SizeEntry]
    """The largest vocabulary first."""
    curve: list[tuple[Count, Count]]
    """Vocabulary sizes and tokens of the corpus, for models that know them for every size."""
    versions: dict[str, str]
    files: list[FileEntry]
    digest: str = ""


def versions(*libraries: str) -> dict[str, str]:
    """Installed versions of the libraries that decide the result."""
    return {name: importlib.metadata.version(name) for name in sorted(("tokenmill", *libraries))}


def read_training(folder: Path) -> Training:
    """Read the training record of a folder.

    Raises:
        VerificationError: there is nothing, or it is damaged.
    """
    path = folder / TRAINING_NAME
    return read_sealed(path, Training)

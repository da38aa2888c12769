"""Short names of well-known data sets: which files of which repository."""

from __future__ import annotations

from typing import NamedTuple


class Alias(NamedTuple):
    """What an alias stands for."""

    repo: str
    path: str
    """A folder or glob in the repository."""


ALIASES = {
    "c4-en": Alias("allenai/c4", "en/c4-train.*.json.gz"),
    "cosmopedia-v2": Alias("HuggingFaceTB/smollm-corpus", "cosmopedia-v2"),
    "fineweb": Alias("HuggingFaceFW/fineweb", "data"),
    "fineweb-10bt": Alias("HuggingFaceFW/fineweb", "sample/10BT"),
    "fineweb-100bt": Alias("HuggingFaceFW/fineweb", "sample/100BT"),
    "fineweb-350bt": Alias("HuggingFaceFW/fineweb", "sample/350BT"),
    "fineweb-edu": Alias("HuggingFaceFW/fineweb-edu", "data"),
    "fineweb-edu-10bt": Alias("HuggingFaceFW/fineweb-edu", "sample/10BT"),
    "fineweb-edu-100bt": Alias("HuggingFaceFW/fineweb-edu", "sample/100BT"),
    "fineweb-edu-350bt": Alias("HuggingFaceFW/fineweb-edu", "sample/350BT"),
    "tinystories": Alias("roneneldan/TinyStories", "data/train-*.parquet"),
    "wikipedia-en": Alias("wikimedia/wikipedia", "20231101.en"),
    "wikitext-103": Alias("Salesforce/wikitext", "wikitext-103-raw-v1/train-*.parquet"),
}
"""The revision is `main` unless one is named, so an alias pins nothing by itself."""

"""Views of small datasets, named by the numbers of their documents."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

import tokenmill
from conftest import write_jsonl
from tokenmill import Dataset
from tokenmill.core.records import BoolArray
from tokenmill.store.view import write_view


def view_of(
    folder: Path, parents: list[Dataset], numbers: Collection[int], question: str = "chosen by hand"
) -> Dataset:
    """A view of the documents with these numbers, counted through all parents."""

    def masks() -> Iterator[BoolArray]:
        first = 0
        for parent in parents:
            for shard in parent.shards:
                count = shard.entry.documents
                yield np.array([first + index in numbers for index in range(count)], np.bool_)
                first += count

    return tokenmill.open(write_view(folder, parents, masks(), [question]))


def built(folder: Path, tokenizer: Path, files: dict[str, list[str]], **options: object) -> Dataset:
    """A dataset of files of texts; small ones share a shard."""
    paths = [write_jsonl(folder / name, texts) for name, texts in files.items()]
    made = {"workers": 1, "eos": "<eos>", "pad": "<pad>", **options}
    return tokenmill.build(paths, tokenizer, folder / "corpus", **made).dataset


def documents_of(dataset: Dataset) -> list[list[int]]:
    """The token ids of the documents in a dataset or view, one list each, in order."""
    found = []
    for shard in dataset.shards:
        found += [shard.document(index).tolist() for index in shard.chosen.tolist()]
    return found

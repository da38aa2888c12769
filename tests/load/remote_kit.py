"""Datasets of a few blocks in a bucket, and what a cache of them holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loading_kit import write_tokenizer
from resume_kit import Open

import tokenmill
from conftest import write_jsonl
from tokenmill import Dataset
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.read import units
from tokenmill.store.digests import BLOCK_BYTES

NUM_SHARDS = 3
BLOCKS_OF_SHARD = 4
SEQUENCE_LENGTH = 2048
GLOBAL_BATCH = 4


def blocks_of_digits(folder: Path, seed: int = 0, **options: Any) -> Dataset:
    """A dataset of three shards with four blocks of ids each, and a plan of 2,048 tokens."""
    folder.mkdir(parents=True)
    source = random.Random(seed)
    files = []
    for number in range(NUM_SHARDS):
        texts = []
        while sum(map(len, texts)) < (BLOCKS_OF_SHARD - 0.5) * BLOCK_BYTES / 2:
            texts.append("".join(source.choices("123456789", k=source.randint(100, 6000))))
        columns = {"no_loss": [[[0, 9]]] * len(texts)} if "no_loss" in options else {}
        files.append(write_jsonl(folder / f"{number}.jsonl", texts, **columns))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", max(file.stat().st_size for file in files) + 1)
        patch.setattr(units, "PIECE_BYTES", 64 << 10)
        dataset = tokenmill.build(
            files,
            write_tokenizer(folder / "tokenizer.json"),
            folder / "dataset",
            workers=1,
            eos="<eos>",
            pad="<pad>",
            **options,
        ).dataset
    assert dataset is not None
    tokenmill.pack(dataset, name="a", sequence_length=SEQUENCE_LENGTH)
    return tokenmill.open(dataset.folder)


def opener(places: Sequence[str | Path], how: dict[str, Any] | None = None, **fixed: Any) -> Open:
    """Two epochs of the plans of datasets, opened as `how` says; several are mixed 3 : 2."""

    def anew(world_size: int = 1, **options: Any) -> list[Any]:
        given = {"global_batch_size": GLOBAL_BATCH, "seed": 3, **fixed, **options}
        ranks = [{"rank": rank, "world_size": world_size} for rank in range(world_size)]
        found = []
        for rank in ranks:
            datasets = [tokenmill.open(place, **(how or {})) for place in places]
            if len(datasets) == 1:
                found.append(datasets[0].batches("a", **{"epochs": 2, **given}, **rank))
                continue
            sources = [
                MixtureSource(
                    dataset=dataset, plan=tokenmill.open_plan(dataset, "a"), share=share, epochs=2
                )
                for dataset, share in zip(datasets, (3.0, 2.0), strict=True)
            ]
            found.append(tokenmill.mix_batches(sources, when_one_ends="go on", **given, **rank))
        return found

    return anew


def bytes_kept(cache: Path) -> int:
    """Bytes that token files below a cache take on the disk."""
    return sum(file.stat().st_blocks * 512 for file in cache.rglob("*.bin"))


def damage(path: Path, block: int) -> None:
    """Change one byte of a block."""
    data = np.fromfile(path, np.uint8)
    data[block * BLOCK_BYTES + 5] ^= 1
    data.tofile(path)

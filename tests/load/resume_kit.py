"""Tiny corpora in a few shards, runs to compare with, and global batches put together again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loading_kit import write_tokenizer

import tokenmill
from conftest import write_jsonl
from tokenmill import Dataset
from tokenmill.load.batches import Batches
from tokenmill.load.columns import Batch
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.read import units

GLOBAL_BATCH = 24
WORLD_SIZES = (1, 2, 3, 4, 8)
SHUFFLES = ("global", "blocks", "none")
COLUMNS = ("input_ids", "labels", "position_ids", "segment_ids", "loss_weights", "task_ids")
"""Arrays with a line for each row."""
PLANS: dict[str, dict[str, Any]] = {
    "packed": {"sequence_length": 16},
    "one piece a row": {"sequence_length": 32, "packing": "next-fit", "max_segments": 1},
    "buckets": {"sequence_length": 32, "packing": "length-buckets", "smallest_bucket": 8},
}
Open = Callable[..., list[Batches]]
"""Opens datasets and plans anew for all ranks; options are those of `Dataset.batches`."""


def sharded(folder: Path, per_shard: int, num_shards: int = 3, seed: int = 0) -> Dataset:
    """A dataset of documents of 1 to 40 digits, with each of PLANS."""
    folder.mkdir(parents=True)
    source = random.Random(seed)
    files = []
    for number in range(num_shards):
        lengths = [source.randint(1, 40) for _ in range(per_shard)]
        texts = ["".join(source.choices("123456789", k=length)) for length in lengths]
        files.append(write_jsonl(folder / f"{number}.jsonl", texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", max(file.stat().st_size for file in files) + 1)
        patch.setattr(units, "PIECE_BYTES", 4 << 10)
        tokenizer = write_tokenizer(folder / "tokenizer.json")
        options = {"workers": 1, "eos": "<eos>", "pad": "<pad>"}
        dataset = tokenmill.build(files, tokenizer, folder / "dataset", **options).dataset
    assert len(dataset.shards) == num_shards
    for name, options in PLANS.items():
        tokenmill.pack(dataset, name=name, **options)
    return dataset


def write_corpora(folder: Path) -> dict[int, list[Path]]:
    """Datasets, by how many are mixed."""
    sizes = {"alone": 30, "large": 16, "middle": 11, "small": 6}
    found = [
        sharded(folder / name, per_shard=size, seed=size).folder for name, size in sizes.items()
    ]
    return {1: found[:1], 3: found[1:]}


def opener(folders: Sequence[Path], name: str, **fixed: Any) -> Open:
    """Two epochs of a plan; or of those of that name of several datasets, mixed 3 : 2 : 1."""

    def anew(world_size: int = 1, **options: Any) -> list[Batches]:
        given = {"global_batch_size": GLOBAL_BATCH, "columns": COLUMNS, **fixed, **options}
        datasets = [tokenmill.open(folder) for folder in folders]
        plans = [tokenmill.open_plan(dataset, name) for dataset in datasets]
        ranks = [{"rank": rank, "world_size": world_size} for rank in range(world_size)]
        if len(datasets) == 1:
            given = {"epochs": 2, **given}
            return [datasets[0].batches(plans[0], **rank, **given) for rank in ranks]
        sources = [
            MixtureSource(dataset=dataset, plan=plan, share=share, epochs=2)
            for dataset, plan, share in zip(datasets, plans, (3.0, 2.0, 1.0), strict=True)
        ]
        given = {"when_one_ends": "go on", **given}
        return [tokenmill.mix_batches(sources, **rank, **given) for rank in ranks]

    return anew


@dataclass(frozen=True)
class Run:
    """A run on one rank from the first step on."""

    batches: list[Batch]
    digests: list[str]
    states: list[dict[str, Any]]
    """Before each step, and after the last."""

    @staticmethod
    def of(anew: Open) -> Run:
        (batches,) = anew()
        states = [batches.state_dict()]
        found = []
        for batch in batches:
            found.append(batch)
            states.append(batches.state_dict())
        (batches,) = anew()
        digests = [batches.digest(step) for step in range(len(found))]
        return Run(found, digests, states)

    def __len__(self) -> int:
        return len(self.batches)


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    """A state as a checkpoint gives it back."""
    found: dict[str, Any] = json.loads(json.dumps(state))
    return found


def resumed(anew: Open, state: dict[str, Any], world_size: int = 1, **options) -> list[Batches]:
    """The batches of each rank, opened anew and taken up at a state."""
    ranks = anew(world_size, **options)
    for each in ranks:
        each.load_state_dict(through_json(state))
    return ranks


def put_together(parts: Sequence[Batch], rows_of_ranks: np.ndarray) -> Batch:
    """The arrays of a global batch, from those of its ranks."""
    whole = {}
    for name in parts[0]:
        arrays = [np.asarray(part[name]) for part in parts]
        pieces = arrays[0].shape[0] // rows_of_ranks.shape[1]  # where rows are cut shorter
        places = rows_of_ranks[:, :, None] * pieces + np.arange(pieces)
        whole[name] = np.empty((places.size, *arrays[0].shape[1:]), arrays[0].dtype)
        for array, at in zip(arrays, places.reshape(len(parts), -1), strict=True):
            whole[name][at] = array
    return whole


def global_batches(ranks: Sequence[Batches]) -> Iterator[Batch]:
    """The batches that ranks give one after another, put together."""
    first = ranks[0].step
    for step, parts in enumerate(zip(*ranks, strict=True), first):
        yield put_together(parts, ranks[0].rows_of_ranks(step)[1])


def as_bytes(batch: Batch) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Everything that there is to compare of arrays."""
    arrays = {name: np.asarray(value) for name, value in batch.items()}
    return {name: (str(a.dtype), a.shape, a.tobytes()) for name, a in arrays.items()}


def all_bytes(batches: Iterable[Batch]) -> list[dict[str, tuple[str, tuple[int, ...], bytes]]]:
    """`as_bytes` of each."""
    return [as_bytes(batch) for batch in batches]


def shown(batch: Batch) -> list[str]:
    """Rows of digits: `.` is the end of a document, `_` is padding."""
    characters = {0: ".", 10: "_", **{digit: str(digit) for digit in range(1, 10)}}
    return ["".join(characters[token] for token in row) for row in batch["input_ids"].tolist()]


def open_files() -> int:
    """Files that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))

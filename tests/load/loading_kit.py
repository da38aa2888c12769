"""Datasets whose ids can be read: digit d has id d, the end of a document 0, padding 10.

"7895"  ->  7 8 9 5 0
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers

import tokenmill
from conftest import write_jsonl
from tokenmill import Dataset
from tokenmill.core.records import Segments, Sequences
from tokenmill.load.batches import Batches
from tokenmill.load.columns import Batch
from tokenmill.packing.options import PackOptions
from tokenmill.packing.window import row_format
from tokenmill.store.plan import Plan, PlanWriter

EOS, PAD, MASK = 0, 10, 11
NUM_IDS = 12
Segment = tuple[int, int, int]
"""Document, first token, number of tokens."""


def write_tokenizer(path: Path, more: Sequence[str] = ()) -> Path:
    """One token for each digit; `more` are special tokens of no use."""
    special = {"<eos>": EOS, "<pad>": PAD, "<mask>": MASK}
    vocabulary = {**special, **{str(digit): digit for digit in range(1, 10)}}
    vocabulary |= {name: NUM_IDS + number for number, name in enumerate(more)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.add_special_tokens([*special, *more])
    tokenizer.save(str(path))
    return path


def digits(folder: Path, texts: Sequence[str], tokenizer: Path | None = None, **options) -> Dataset:
    """A dataset of texts of digits, in a folder that is still empty or missing."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = {"no_loss": options["no_loss"]} if "no_loss" in options else {}
    path = write_jsonl(folder / "texts.jsonl", texts, **columns)
    made_with = tokenizer or write_tokenizer(folder / "tokenizer.json")
    built: dict[str, Any] = {"workers": 1, "eos": "<eos>", "pad": "<pad>"}
    built |= {"no_loss": "no_loss"} if columns else {}
    return tokenmill.build(path, made_with, folder / "dataset", **built).dataset


def plan_of(
    folder: Path, dataset: Dataset, sequences: Sequence[Sequence[Segment]], **options: Any
) -> Plan:
    """A plan with just these segments."""
    flat = np.array([part for parts in sequences for part in parts], np.int64).reshape(-1, 3)
    offsets = np.cumsum([0, *map(len, sequences)])
    figures = {"most_segments": max(map(len, sequences), default=0)}
    with PlanWriter(folder, dataset.num_documents) as writer:
        writer.append(Sequences(Segments(*flat.T), offsets), 0, len(dataset.shards))
        wanted = PackOptions(**options)
        writer.finish(
            dataset.manifest.dataset_id,
            wanted.stored(),
            figures,
            row_format(wanted, figures["most_segments"]),
            overwrite=False,
        )
    return Plan(folder)


def all_batches(batches: Batches) -> list[Batch]:
    """Every batch from step 0 on."""
    return list(batches.every(1, 0))


def as_lists(batch: Batch) -> dict[str, Any]:
    """A batch with lists in place of arrays."""
    return {
        name: value.tolist() if hasattr(value, "tolist") else value for name, value in batch.items()
    }

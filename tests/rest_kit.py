"""Counts of the tokens that a run has given and that a plan holds, made segment by segment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from loading_kit import write_tokenizer

import tokenmill
from conftest import write_jsonl
from tokenmill import Dataset
from tokenmill.load.batches import Batches
from tokenmill.packing.planning import PlanReport
from tokenmill.read import units
from tokenmill.store.plan import Plan

Tokens = Counter[tuple[int, int]]
"""How often each token occurs, by its document and its place in it."""


def text(number: int, length: int) -> str:
    """A text of so many digits, which differs from its neighbours'."""
    return "".join(str((number * 7 + place * 3) % 9 + 1) for place in range(length))


def corpus(folder: Path, files: Sequence[Sequence[int]], **options: Any) -> Dataset:
    """A dataset with a shard for each file, of documents of so many tokens with their end.

    Every third document is of kind "code", the others are "text".
    """
    folder.mkdir()
    tokenizer, paths, before = write_tokenizer(folder / "tokenizer.json"), [], 0
    for number, lengths in enumerate(files):
        texts = [text(before + index, length - 1) for index, length in enumerate(lengths)]
        kinds = [["code", "text", "text"][(before + i) % 3] for i in range(len(texts))]
        path = write_jsonl(folder / f"{number}.jsonl", texts, kind=kinds)
        path.write_bytes(path.read_bytes().ljust(3000, b"\n"))
        paths.append(path)
        before += len(lengths)
    made = {"workers": 1, "eos": "<eos>", "pad": "<pad>", "keep": ["kind"], **options}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 4 << 10)  # so that no two files share a shard
        dataset = tokenmill.build(paths, tokenizer, folder / "corpus", **made).dataset
    assert len(dataset.shards) == len(files)
    return dataset


def all_tokens(dataset: Dataset, documents: Sequence[int] | None = None) -> Tokens:
    """Every token of a dataset or view once, or those of some documents."""
    found: Tokens = Counter()
    first = 0
    for shard in dataset.shards:
        lengths = shard.read_lengths().tolist()
        for index in shard.chosen.tolist():
            if documents is None or first + index in documents:
                found.update((first + index, token) for token in range(lengths[index]))
        first += len(lengths)
    return found


def planned(plan: Plan, sequences: Iterator[int] | None = None) -> Tokens:
    """The tokens of sequences, without those that a window repeats of the window before."""
    found: Tokens = Counter()
    for sequence in range(len(plan)) if sequences is None else sequences:
        for document, start, length in plan.segments(sequence):
            repeated = plan.rows.overlap if start else 0
            found.update((document, token) for token in range(start + repeated, start + length))
    return found


def given(batches: Batches, plan: Plan, step: int, epoch: int) -> Tokens:
    """The tokens of the sequences of an epoch in the batches before a step."""
    found: Tokens = Counter()
    for each in range(step):
        whole = batches.global_batch(each)
        assert whole is not None
        found += planned(plan, iter(whole.sequences[whole.epochs == epoch].tolist()))
    return found


def state_at(batches: Batches, step: int) -> dict[str, Any]:
    """The state at a step, as a checkpoint gives it back."""
    found: dict[str, Any] = json.loads(json.dumps(batches.state_dict(step)))
    return found


def is_whole(report: PlanReport, dataset: Dataset) -> bool:
    """Whether the figures account for every token of the datasets behind a dataset or view."""
    figures, total = report.figures, sum(root.num_tokens for root in dataset.roots)
    return figures.tokens + sum(figures.left_out_tokens.values()) == total

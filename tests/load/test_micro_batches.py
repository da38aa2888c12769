"""A batch in parts: together they are the batch, and each is one that a model can take."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import PAD, Segment, as_lists, digits, plan_of

from tokenmill import Dataset
from tokenmill.core.errors import UserError
from tokenmill.load.columns import COLUMNS, Batch, micro_batches
from tokenmill.load.loader import as_tensors
from tokenmill.load.opening import open_batches
from tokenmill.load.steps.curriculum import Curriculum, Phase

NO = -100
ROWS: list[list[Segment]] = [
    [(0, 0, 3), (1, 0, 3)],
    [(0, 3, 3)],
    [(2, 0, 7)],
    [(3, 0, 2), (3, 0, 2), (3, 0, 2)],
]
EDGES = ("cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """7 8 9 5 6 0, then 3 4 0, then 1 2 3 4 5 6 7 0, then 9 0."""
    return digits(tmp_path_factory.mktemp("digits"), ["78956", "34", "1234567", "9"])


@pytest.fixture(scope="module")
def batch(dataset: Dataset, folders: Iterable[Path]) -> Batch:
    """Every column of four rows."""
    plan = plan_of(next(iter(folders)), dataset, ROWS, sequence_length=7)
    order = {"batch_size": 4, "shuffle": "none", "columns": tuple(COLUMNS)}
    return open_batches(dataset, plan, **order).batch(0)


def chosen(batch: Batch, *names: str) -> Batch:
    return {name: batch[name] for name in names}


def test_two_rows_each(batch: Batch) -> None:
    names = ("input_ids", "labels", "cu_seqlens", "max_seqlen", "num_targets", "task_ids")
    first, second = map(as_lists, micro_batches(chosen(batch, *names), 2))
    assert first == {
        "input_ids": [[7, 8, 9, 3, 4, 0, PAD], [5, 6, 0, PAD, PAD, PAD, PAD]],
        "labels": [[NO, 8, 9, NO, 4, 0, NO], [NO, 6, 0, NO, NO, NO, NO]],
        "cu_seqlens": [0, 3, 6, 7, 10, 14, 14, 14, 14],
        "max_seqlen": 4,
        "num_targets": 6,
        "task_ids": [0, 0],
    }
    assert second == {
        "input_ids": [[1, 2, 3, 4, 5, 6, 7], [9, 0, 9, 0, 9, 0, PAD]],
        "labels": [[NO, 2, 3, 4, 5, 6, 7], [NO, 0, NO, 0, NO, 0, NO]],
        "cu_seqlens": [0, 7, 9, 11, 13, 14, 14, 14, 14],
        "max_seqlen": 7,
        "num_targets": 9,
        "task_ids": [0, 0],
    }


def test_parts_are_views(batch: Batch) -> None:
    for part in micro_batches(batch, 2):
        assert np.shares_memory(part["input_ids"], batch["input_ids"])
        assert not np.shares_memory(part["cu_seqlens"], batch["cu_seqlens"])


@pytest.mark.parametrize("number", [1, 2, 4])
def test_tensors_are_divided_as_arrays_are(number: int, batch: Batch) -> None:
    tensors = micro_batches(as_tensors(batch), number)
    for found, expected in zip(tensors, micro_batches(batch, number), strict=True):
        assert list(found) == list(expected)
        for name, value in expected.items():
            if isinstance(value, np.ndarray):
                assert isinstance(found[name], torch.Tensor)
                assert torch.equal(found[name], torch.from_numpy(value))
                assert found[name].dtype == torch.from_numpy(value).dtype
            elif name != "segmentation":
                assert found[name] == value
                assert type(found[name]) is type(value)


@pytest.mark.parametrize("number", [0, -1, 3, 8])
def test_rows_that_cannot_be_divided_evenly_are_refused(number: int, batch: Batch) -> None:
    with pytest.raises(UserError) as caught:
        micro_batches(batch, number)
    assert caught.value.what == f"cannot split the batch into {number} equal parts"
    assert caught.value.why == "it has 4 rows"


def test_targets_are_counted_in_labels_or_refused(batch: Batch) -> None:
    with pytest.raises(UserError) as caught:
        micro_batches(chosen(batch, "input_ids", "num_targets"), 2)
    assert caught.value.what == "cannot split the batch"
    assert caught.value.why.startswith("it has num_targets but no labels")
    parts = micro_batches(chosen(batch, "input_ids", "labels", "num_targets"), 2)
    assert [part["num_targets"] for part in parts] == [6, 9]


def of_cut_rows(dataset: Dataset, folder: Path, rows: list[list[Segment]], cut: int) -> Batch:
    """Rows of 8 tokens, cut shorter."""
    plan = plan_of(folder, dataset, rows, sequence_length=8)
    curriculum = Curriculum.of_plan(plan, dataset, len(rows), (Phase(row_length=cut),))
    return open_batches(dataset, plan, curriculum=curriculum, columns=tuple(COLUMNS)).batch(0)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.sampled_from([[(3, 0, 1), (2, 0, 7)], [(2, 0, 8)], [(3, 0, 1)] * 3, [(0, 0, 6)]]),
        min_size=1,
        max_size=6,
    ),
    cut=st.sampled_from([1, 2, 4]),
    data=st.data(),
)
def test_the_edges_of_parts_of_cut_rows_have_one_size(
    rows: list[list[Segment]],
    cut: int,
    data: st.DataObject,
    dataset: Dataset,
    folders: Iterable[Path],
) -> None:
    batch = of_cut_rows(dataset, next(iter(folders)), rows, cut)
    num_rows = len(rows) * 8 // cut
    divisors = [number for number in range(1, num_rows + 1) if num_rows % number == 0]
    number = data.draw(st.sampled_from(divisors))
    own = [
        batch["segmentation"].part(first, first + num_rows // number)
        for first in range(0, num_rows, num_rows // number)
    ]
    whole = len(batch["cu_seqlens"])
    size = (whole - 1) // number + 1
    size = whole if max(map(len, own)) + 1 > size else size
    for part, expected in zip(micro_batches(batch, number), own, strict=True):
        for name in EDGES:
            assert part[name].tolist() == expected.padded_edges(size - 1).tolist()
            assert part[name].dtype == np.int32
        assert part["max_seqlen"] == expected.max_length


@settings(max_examples=60, deadline=None)
@given(chosen_rows=st.lists(st.sampled_from(ROWS), min_size=1, max_size=12), data=st.data())
def test_any_rows_in_any_number_of_parts(
    chosen_rows: list[list[Segment]],
    data: st.DataObject,
    dataset: Dataset,
    folders: Iterable[Path],
) -> None:
    num_rows = len(chosen_rows)
    divisors = [number for number in range(1, num_rows + 1) if num_rows % number == 0]
    number = data.draw(st.sampled_from(divisors))
    plan = plan_of(next(iter(folders)), dataset, chosen_rows, sequence_length=7)
    options: dict[str, Any] = {"shuffle": "none", "columns": tuple(COLUMNS)}
    batch = open_batches(dataset, plan, batch_size=num_rows, **options).batch(0)
    smaller = open_batches(dataset, plan, batch_size=num_rows // number, **options)
    for place, part in enumerate(micro_batches(batch, number)):
        found, expected = as_lists(part), as_lists(smaller.batch(place))
        for each in (found, expected):
            each["segmentation"] = each["segmentation"].edges.tolist()
        assert found == expected

"""The order of an epoch: shuffled, by groups, in bands of a key."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import UserError
from tokenmill.load.steps.order import (
    Order,
    Shuffle,
    Steps,
    banded,
    sequence_keys,
    shuffled,
)
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import pack
from tokenmill.read import units
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan

Build = Callable[..., Dataset]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Build:
    """Makes a dataset of texts of digits, which have one token for each and one at the end."""
    numbers = count()

    def make(texts: list[str], **columns: list[Any]) -> Dataset:
        folder = tmp_path_factory.mktemp(f"dataset-{next(numbers)}")
        path = write_jsonl(folder / "a.jsonl", texts, **columns)
        return tokenmill.build(
            path, tokenizer_path, folder / "out", workers=1, keep=list(columns)
        ).dataset

    return make


@pytest.fixture(scope="module")
def dataset(build: Build) -> Dataset:
    """Documents of 2 to 9 tokens."""
    return build(["1" * (1 + number % 8) for number in range(100)])


def planned(dataset: Dataset, folder: Path, **options: Any) -> Plan:
    return pack(
        dataset, PackOptions(**options), folder / f"plan-{len(list(folder.iterdir()))}"
    ).plan


# Shuffled.


def test_an_epoch_is_a_permutation_and_depends_on_seed_and_epoch_only(
    dataset: Dataset, tmp_path: Path
) -> None:
    plan = planned(dataset, tmp_path, sequence_length=16)
    orders = {
        (seed, epoch): shuffled(plan, seed, epoch).tolist() for seed in (0, 1) for epoch in (0, 1)
    }
    for (seed, epoch), order in orders.items():
        assert sorted(order) == list(range(len(plan)))
        assert shuffled(Plan(plan.folder), seed, epoch).tolist() == order
    assert len({tuple(order) for order in orders.values()}) == 4


# Steps, and their order.


def steps_from(size: int, *windows: int) -> Steps:
    """Windows of these numbers of sequences."""
    return Steps(size, np.cumsum([0, *windows]))


WINDOWS = st.lists(st.integers(0, 30), min_size=1, max_size=6)


def model_steps(size: int, windows: list[int]) -> tuple[list[list[int]], list[int]]:
    """Complete steps, and the rest."""
    steps, rest, first = [], [], 0
    for window in windows:
        for at in range(first, first + window, size):
            part = list(range(at, min(at + size, first + window)))
            if len(part) == size:
                steps.append(part)
            else:
                rest += part
        first += window
    return steps, rest


@given(size=st.integers(1, 9), windows=WINDOWS)
def test_steps_are_those_of_the_model(size: int, windows: list[int]) -> None:
    expected, rest = model_steps(size, windows)
    steps = steps_from(size, *windows)
    flat = [sequence for step in expected for sequence in step]
    assert steps.num_steps == len(expected)
    assert steps.rest.tolist() == rest
    assert steps.sequences(np.arange(sum(windows))).tolist() == flat + rest
    assert steps.places(np.array(flat + rest, np.int64)).tolist() == list(range(sum(windows)))


@settings(max_examples=75, deadline=None)
@given(
    size=st.integers(1, 9),
    windows=WINDOWS,
    shuffle=st.sampled_from(["global", "blocks", "none"]),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 9),
    data=st.data(),
)
def test_any_order_keeps_steps_whole_and_the_rest_last(
    size: int,
    windows: list[int],
    shuffle: Shuffle,
    seed: int,
    epoch: int,
    data: st.DataObject,
) -> None:
    expected, rest = model_steps(size, windows)
    total = sum(windows)
    with pytest.MonkeyPatch.context() as patch:  # so that there are several stretches of blocks
        patch.setattr("tokenmill.load.steps.order.BLOCK", 8)
        patch.setattr("tokenmill.load.steps.order.BLOCKS_AT_ONCE", 2)
        order = Order(steps_from(size, *windows), seed, shuffle)
        found = order(epoch, np.arange(total)).tolist()
        places = data.draw(st.lists(st.integers(0, max(total - 1, 0)), max_size=5 * bool(total)))
        some = order(epoch, np.array(places, np.int64)).tolist()
        assert order.places(epoch, np.array(found, np.int64)).tolist() == list(range(total))
    shuffled_part = found[: len(expected) * size]
    steps = [shuffled_part[at : at + size] for at in range(0, len(shuffled_part), size)]
    assert sorted(steps) == expected
    assert found[len(shuffled_part) :] == rest
    assert some == [found[place] for place in places]
    if shuffle == "none":
        assert steps == expected


def test_an_order_depends_on_all_that_it_is_made_of() -> None:
    steps = steps_from(1, 60)
    orders = {
        tuple(Order(steps, seed, shuffle)(epoch, np.arange(60)).tolist())
        for seed in range(4)
        for epoch in range(4)
        for shuffle in ("global", "blocks")
    }
    assert len(orders) == 32
    unshuffled = Order(steps, 3, "none")(2, np.arange(60)).tolist()
    assert unshuffled == list(range(60))


# In bands.


@given(keys=st.lists(st.integers(-3, 30), min_size=1, max_size=60), bands=st.integers(1, 70))
def test_bands_are_of_equal_size_and_do_not_overlap(keys: list[int], bands: int) -> None:
    count = len(keys)
    order = np.random.default_rng(count).permutation(count)
    found = banded(order, np.array(keys, float), bands).tolist()
    by_key = sorted(order.tolist(), key=lambda sequence: keys[sequence])  # stable
    band_of = {sequence: rank * bands // count for rank, sequence in enumerate(by_key)}
    assert found == sorted(order.tolist(), key=band_of.__getitem__)
    sizes = [list(band_of.values()).count(band) for band in range(bands)]
    assert max(sizes) - min(sizes) <= 1


# Keys.


def test_keys_are_mean_lengths_and_numbers_of_segments(build: Build, tmp_path: Path) -> None:
    dataset = build(["1", "12", "123", "1234567"])
    plan = planned(dataset, tmp_path, sequence_length=8, packing="next-fit")
    assert [plan.segments(number) for number in range(len(plan))] == [
        [(0, 0, 2), (1, 0, 3)],
        [(2, 0, 4)],
        [(3, 0, 8)],
    ]
    assert sequence_keys(plan, "depth").tolist() == [2.0, 1.0, 1.0]
    assert sequence_keys(plan, "length").tolist() == [2.5, 4.0, 8.0]
    assert sequence_keys(plan, "depth").dtype == sequence_keys(plan, "length").dtype == np.float64


def test_a_kept_column_gives_the_mean_over_documents(build: Build, tmp_path: Path) -> None:
    dataset = build(["1", "12", "123"], score=[0.5, 2, -1e2])
    plan = planned(dataset, tmp_path, sequence_length=5, packing="next-fit")
    assert [plan.segments(number) for number in range(2)] == [
        [(0, 0, 2), (1, 0, 3)],
        [(2, 0, 4)],
    ]
    assert sequence_keys(plan, "score", dataset).tolist() == [1.25, -100.0]


def test_a_column_comes_from_all_shards(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 1 << 10)
    monkeypatch.setattr(units, "PIECE_BYTES", 1 << 10)
    scores = [(37 * number) % 101 for number in range(200)]
    path = write_jsonl(tmp_path / "a.jsonl", ["123"] * 200, score=scores)
    out = tmp_path / "out"
    dataset = tokenmill.build(path, tokenizer_path, out, workers=1, keep=["score"]).dataset
    assert len(dataset.shards) > 2
    made_of = {"packing": "next-fit", "window": "global"}
    plan = pack(dataset, PackOptions(sequence_length=4, **made_of), tmp_path / "plan").plan
    assert sequence_keys(plan, "score", dataset).tolist() == [float(score) for score in scores]


def test_a_column_that_was_not_kept_is_named_with_those_that_were(
    build: Build, tmp_path: Path
) -> None:
    dataset = build(["123"], score=[1])
    plan = planned(dataset, tmp_path, sequence_length=4)
    with pytest.raises(UserError) as caught:
        sequence_keys(plan, "quality", dataset)
    assert caught.value.what == "the documents table has no column 'quality'"
    assert caught.value.why == "it has score"
    assert caught.value.where == str(dataset.folder)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (["good", "bad"], "the column 'score' does not contain numbers"),
        ([1, "bad"], "the column 'score' does not contain numbers"),
        ([1, [2]], "the column 'score' does not contain numbers"),
        ([1, None], "the column 'score' lacks finite values"),
        ([1, ""], "the column 'score'"),
        (["nan", 1], "the column 'score'"),
    ],
)
def test_a_column_with_text_or_gaps_is_refused(
    values: list[Any], what: str, build: Build, tmp_path: Path
) -> None:
    dataset = build(["123", "456"], score=values)
    plan = planned(dataset, tmp_path, sequence_length=4)
    with pytest.raises(UserError) as caught:
        sequence_keys(plan, "score", dataset)
    assert what in caught.value.what

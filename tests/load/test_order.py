"""The order of an epoch: shuffled, by groups, in bands of a key."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise
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
    steps_of,
)
from tokenmill.pack.options import PackOptions
from tokenmill.pack.planning import pack
from tokenmill.read import units
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan

Build = Callable[..., Dataset]


pytestmark = pytest.mark.usefixtures("without_waiting_for_disks")


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


def test_the_order_of_an_epoch_never_changes(build: Build, tmp_path: Path) -> None:
    """As computed by an implementation of its own, in plain integers."""
    epoch_0 = [10, 7, 1, 3, 5, 2, 0, 9, 4, 6, 11, 8]
    epoch_1 = [6, 3, 1, 9, 0, 10, 7, 2, 5, 8, 4, 11]
    plan = planned(build(["123"] * 12), tmp_path, sequence_length=4)
    assert shuffled(plan, seed=7).tolist() == epoch_0
    assert shuffled(plan, seed=7, epoch=1).tolist() == epoch_1


def test_a_plan_of_one_sequence_has_one_order(build: Build, tmp_path: Path) -> None:
    plan = planned(build(["123"]), tmp_path, sequence_length=4)
    assert shuffled(plan, seed=3).tolist() == [0]


def balanced_plan(build: Build, folder: Path, num_sequences: int, ranks: int) -> Plan:
    """Every document fills a sequence."""
    plan = planned(
        build(["123"] * num_sequences), folder, sequence_length=4, packing="balanced", ranks=ranks
    )
    assert len(plan) == num_sequences
    return plan


def test_sequences_that_are_balanced_over_ranks_stay_together(build: Build, tmp_path: Path) -> None:
    plan = balanced_plan(build, tmp_path, num_sequences=40, ranks=4)
    steps = shuffled(plan, seed=1).reshape(-1, 4).tolist()
    assert sorted(steps) == [[n, n + 1, n + 2, n + 3] for n in range(0, 40, 4)]
    assert steps != sorted(steps)


@pytest.mark.parametrize("seed", range(4))
def test_an_incomplete_group_does_not_shift_the_steps_after_it(
    seed: int, build: Build, tmp_path: Path
) -> None:
    plan = balanced_plan(build, tmp_path, num_sequences=18, ranks=4)
    order = shuffled(plan, seed).tolist()
    assert sorted(order) == list(range(18))
    steps = [order[first : first + 4] for first in range(0, 16, 4)]
    assert [first % 4 for first, *_ in steps] == [0, 0, 0, 0]
    assert [step == list(range(step[0], step[0] + 4)) for step in steps] == [True] * 4


def test_groups_of_windows_that_do_not_fill_their_last_stay_together(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each window of a balanced plan begins with a group of its own."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 1 << 10)
    monkeypatch.setattr(units, "PIECE_BYTES", 1 << 10)
    for number in range(3):
        write_jsonl(tmp_path / f"{number}.jsonl", ["1" * (3 + 4 * number)] * 200)
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    dataset = tokenmill.build(files, tokenizer_path, tmp_path / "out", workers=1).dataset
    made_of = {"packing": "balanced", "ranks": 7, "window_sequences": 30}
    plan = pack(dataset, PackOptions(sequence_length=12, **made_of), tmp_path / "plan").plan
    starts = plan.window_starts.tolist()
    assert len(starts) > 2
    assert any(start % 7 for start in starts[:-1])
    groups = {
        tuple(range(first, min(first + 7, stop)))
        for start, stop in pairwise(starts)
        for first in range(start, stop, 7)
    }
    order = shuffled(plan, seed=0).tolist()
    place = {sequence: index for index, sequence in enumerate(order)}
    assert all(
        [place[sequence] - place[group[0]] for sequence in group] == list(range(len(group)))
        for group in groups
    )


# Steps, and their order.


def steps_from(size: int, *windows: int) -> Steps:
    """Windows of these numbers of sequences."""
    return Steps(size, np.cumsum([0, *windows]))


def test_steps_never_reach_over_the_end_of_a_window() -> None:
    """0 to 6, then 7 8, then nothing, then 9 to 11: neither 6 nor 7 8 make a step of three."""
    steps = steps_from(3, 7, 2, 0, 3)
    assert steps.num_steps == 3
    assert steps.firsts.tolist() == [0, 3, 9]
    assert steps.rest.tolist() == [6, 7, 8]
    assert steps.sequences(np.arange(12)).tolist() == [0, 1, 2, 3, 4, 5, 9, 10, 11, 6, 7, 8]
    assert steps.sequences(np.array([11, 0, 8, 8])).tolist() == [8, 0, 11, 11]


def test_steps_of_one_sequence_are_the_sequences() -> None:
    steps = steps_from(1, 3, 4)
    assert steps.num_steps == 7
    assert steps.firsts.tolist() == list(range(7))
    assert steps.rest.tolist() == []


def test_windows_too_small_for_a_step_are_all_rest() -> None:
    steps = steps_from(4, 3, 2, 1)
    assert steps.num_steps == 0
    assert steps.firsts.tolist() == []
    assert steps.rest.tolist() == list(range(6))
    assert Order(steps, seed=0)(0, np.arange(6)).tolist() == list(range(6))


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
    assert steps.firsts.tolist() == [step[0] for step in expected]
    assert steps.rest.tolist() == rest
    assert steps.sequences(np.arange(sum(windows))).tolist() == flat + rest


@settings(max_examples=150, deadline=None)
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


def test_blocks_of_sequences_are_read_while_they_are_at_hand() -> None:
    """Sixty-four blocks of 1024 sequences each, and then the next."""
    order = Order(steps_from(1, 1 << 18), 0, "blocks")(0, np.arange(1 << 18)).reshape(4, -1)
    blocks = [set((stretch // 1024).tolist()) for stretch in order]
    assert [len(found) for found in blocks] == [64, 64, 64, 64]
    assert sorted(set.union(*blocks)) == list(range(256))


def test_blocks_are_as_large_where_steps_have_several_sequences() -> None:
    order = Order(steps_from(8, 1 << 18), 0, "blocks")(0, np.arange(1 << 18))
    assert sorted(order.tolist()) == list(range(1 << 18))
    assert [len(set((part // 1024).tolist())) for part in order.reshape(4, -1)] == [64] * 4


def entropy(values: Any) -> float:
    """In bits."""
    counts = np.bincount(values)
    shares = counts[counts > 0] / len(values)
    return float(-(shares * np.log2(shares)).sum())


def test_shuffling_globally_is_better_than_by_blocks_and_that_than_not_at_all() -> None:
    """The entropy of distances of neighbours, counted in blocks of 1024."""
    n = 1 << 19
    found = {}
    for shuffle in ("global", "blocks", "none"):
        order = Order(steps_from(1, n), 0, shuffle)(0, np.arange(n))
        found[shuffle] = entropy(np.abs(np.diff(order)) // 1024)
    apart = np.arange(1, 512)
    shares = np.concatenate([[1 / 512], 2 * (512 - apart) / 512**2])  # of numbers drawn at random
    best = float(-(shares * np.log2(shares)).sum())
    assert best - 0.01 < found["global"] < best + 0.01
    assert best - 0.1 < found["blocks"] < found["global"] - 0.02
    assert found["none"] == 0


# In bands.


def test_bands_rise_and_keep_the_order_inside() -> None:
    order = np.array([4, 0, 5, 2, 1, 3])
    keys = np.array([10.0, 30.0, 20.0, 11.0, 31.0, 21.0])
    assert banded(order, keys, bands=3).tolist() == [0, 3, 5, 2, 4, 1]
    assert banded(order, keys, bands=1).tolist() == [4, 0, 5, 2, 1, 3]
    assert banded(order, keys, bands=6).tolist() == [0, 3, 2, 5, 1, 4]


def test_equal_keys_stay_in_their_order() -> None:
    order = np.array([2, 0, 3, 1])
    assert banded(order, np.zeros(4), bands=4).tolist() == [2, 0, 3, 1]


def test_part_of_the_sequences_can_be_sorted_alone() -> None:
    keys = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert banded(np.array([0, 2, 4]), keys, bands=3).tolist() == [4, 2, 0]
    assert banded(np.array([], np.int64), keys, bands=3).tolist() == []


@pytest.mark.parametrize("bands", [20, 1000, 2**62, 2**70])
def test_more_bands_than_sequences_sort_completely(bands: int) -> None:
    order = np.array([(7 * place) % 20 for place in range(20)])
    assert banded(order, np.arange(20.0), bands).tolist() == list(range(20))


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


def test_an_order_by_key_keeps_groups_of_ranks_together(build: Build, tmp_path: Path) -> None:
    dataset = build(["1" * (1 + number % 7) for number in range(160)])
    plan = planned(dataset, tmp_path, sequence_length=16, packing="balanced", ranks=4)
    whole = len(plan) // 4 * 4
    assert whole == len(plan)
    order = banded(shuffled(plan, seed=0), sequence_keys(plan, "depth"), 5, steps_of(plan))
    assert sorted(map(sorted, order.reshape(-1, 4).tolist())) == [
        [n, n + 1, n + 2, n + 3] for n in range(0, whole, 4)
    ]


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


def test_one_huge_value_does_not_blur_the_others(build: Build, tmp_path: Path) -> None:
    dataset = build(["123"] * 4, score=[1e17, 3, 1, 2])
    plan = planned(dataset, tmp_path, sequence_length=4, packing="next-fit")
    assert sequence_keys(plan, "score", dataset).tolist() == [1e17, 3.0, 1.0, 2.0]


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


def test_a_column_needs_the_dataset(dataset: Dataset, tmp_path: Path) -> None:
    plan = planned(dataset, tmp_path, sequence_length=16)
    with pytest.raises(
        UserError, match="to sort by the column 'score', a curriculum needs the dataset"
    ):
        sequence_keys(plan, "score")


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

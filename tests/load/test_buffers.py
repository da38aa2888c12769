"""Memory that is used again: never while anybody can still see what is in it."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import all_batches, digits, plan_of

from tokenmill.load.batches import Batches
from tokenmill.load.loader import as_tensors
from tokenmill.load.opening import open_batches
from tokenmill.load.rows import buffers
from tokenmill.load.rows.buffers import ARRAYS_KEPT, SHAPES_KEPT, Buffers

SHAPE = (4, 8)
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "the array": lambda array: array,
    "a list": lambda array: [array],
    "a batch": lambda array: {"input_ids": array},
    "one row": lambda array: array[1],
    "a reshaped view": lambda array: array.reshape(-1),
    "a view of another dtype": lambda array: array.view(np.uint8),
    "a view of a view": lambda array: array.T[2:][::2],
    "a memoryview": memoryview,
    "its bytes": lambda array: memoryview(array).cast("B")[3:],
    "a tensor": torch.from_numpy,
    "a view of a tensor": lambda array: torch.from_numpy(array)[1:].view(-1),
    "a tensor by DLPack": torch.from_dlpack,
    "an array over a memoryview": lambda array: np.frombuffer(memoryview(array), np.int64),
    "an iterator": iter,
    "a closure": lambda array: lambda: array,
}

needs_reuse = pytest.mark.skipif(not buffers.REUSES, reason="without the global lock")
pytestmark = pytest.mark.usefixtures("without_waiting_for_disks")


def address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


@pytest.fixture
def fast_switches() -> Iterator[None]:
    """Threads take turns after a microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


# What is used again.


@needs_reuse
def test_an_array_that_nobody_holds_is_used_again() -> None:
    pool = Buffers()
    places = {address(pool.empty(SHAPE, np.int64)) for _ in range(50)}
    assert len(places) == 1


@needs_reuse
@pytest.mark.parametrize("kind", HOLDERS)
def test_an_array_that_somebody_holds_is_not(kind: str) -> None:
    """And it is, once they let go of it."""
    pool = Buffers()
    array = pool.empty(SHAPE, np.int64)
    array[...] = 7
    place, holder = address(array), HOLDERS[kind](array)
    del array
    others = [pool.empty(SHAPE, np.int64) for _ in range(ARRAYS_KEPT - 1)]
    for other in others:
        assert address(other) != place
        other[...] = 3
    del other, others, holder
    gc.collect()
    again = [pool.empty(SHAPE, np.int64) for _ in range(ARRAYS_KEPT)]
    assert place in map(address, again)


@pytest.mark.parametrize("kind", HOLDERS)
def test_what_is_held_keeps_its_values(kind: str) -> None:
    """However many arrays follow: those that the pool lets go of stay with who holds them."""
    pool = Buffers()
    array = pool.empty(SHAPE, np.int64)
    array[...] = 7
    holder = HOLDERS[kind](array)
    witness = np.asarray(array)[1:2]
    del array
    for _ in range(3 * ARRAYS_KEPT):
        pool.empty(SHAPE, np.int64)[...] = 3
    many = [pool.empty(SHAPE, np.int64) for _ in range(3 * ARRAYS_KEPT)]
    for other in many:
        other[...] = 3
    assert witness.tolist() == [[7] * 8]
    del holder


def test_weak_references_hold_nothing() -> None:
    pool = Buffers()
    array = pool.empty(SHAPE, np.int64)
    reference = weakref.ref(array)
    del array
    found = pool.empty(SHAPE, np.int64)
    assert reference() is (found if buffers.REUSES else None)


# Shapes and dtypes.


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((8, 4), np.int64),
        ((32,), np.int64),
        ((4, 8, 1), np.int64),
        ((4, 8), np.uint64),
        ((4, 8), np.float64),
        ((4, 16), np.int32),
        ((4, 8), ">i8"),
        ((), np.int64),
        ((0, 8), np.int64),
    ],
)
def test_arrays_of_another_shape_or_dtype_are_others(shape: tuple[int, ...], dtype: Any) -> None:
    pool = Buffers()
    pool.empty(SHAPE, np.int64)
    found = pool.empty(shape, dtype)
    assert (found.shape, found.dtype) == (shape, np.dtype(dtype))
    assert found.flags.c_contiguous
    assert found.flags.writeable
    assert found.flags.owndata


@settings(max_examples=100, deadline=None)
@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from([(4,), (2, 2), (3, 5), (0,)]),
            st.sampled_from(["int64", "int32", "uint8"]),
            st.integers(0, 6),
        ),
        max_size=80,
    )
)
def test_arrays_that_are_alive_at_once_share_nothing(
    asked: list[tuple[tuple[int, ...], str, int]],
) -> None:
    """Each is kept in one of seven places, where it takes that of an earlier one."""
    pool, alive = Buffers(), {}
    for number, (shape, dtype, place) in enumerate(asked):
        array = pool.empty(shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        array[...] = number
        alive[place] = (array[...], number)
        del array
        for one, other in combinations(alive.values(), 2):
            assert not np.shares_memory(one[0], other[0])
        assert all((view == value).all() for view, value in alive.values())


# How many are kept.


@needs_reuse
def test_a_bounded_number_is_kept() -> None:
    """Of the arrays of one kind the last ones, and of kinds those since there were too many."""
    pool = Buffers()
    references = []
    for number in range(2 * SHAPES_KEPT + 3):
        arrays = [pool.empty((number + 1,), np.uint8) for _ in range(2 * ARRAYS_KEPT)]
        references += map(weakref.ref, arrays)
        del arrays
    gc.collect()
    kept = [reference() is not None for reference in references]
    of_kind = [False] * ARRAYS_KEPT + [True] * ARRAYS_KEPT
    assert kept == [False] * (2 * SHAPES_KEPT * 2 * ARRAYS_KEPT) + of_kind * 3


@needs_reuse
def test_kinds_are_kept_apart() -> None:
    pool = Buffers()
    kinds = [((4, 8), np.int64), ((8, 4), np.int64), ((4, 8), np.uint64), ((32,), np.int64)]
    first = [address(pool.empty(*kind)) for kind in kinds]
    assert len(set(first)) == len(kinds)
    assert [address(pool.empty(*kind)) for kind in kinds] == first


@needs_reuse
def test_arrays_beyond_the_bound_live_with_who_holds_them() -> None:
    pool = Buffers()
    held = [pool.empty((3,), np.int64) for _ in range(2 * ARRAYS_KEPT)]
    for number, array in enumerate(held):
        array[...] = number
    assert [array.tolist() for array in held] == [[number] * 3 for number in range(len(held))]
    references = [weakref.ref(array) for array in held]
    del held, array
    gc.collect()
    assert sum(reference() is not None for reference in references) == ARRAYS_KEPT


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pool_is_pickled_empty(protocol: int) -> None:
    pool = Buffers()
    held = pool.empty((1000,), np.int64)
    data = pickle.dumps(pool, protocol)
    assert len(data) < 200
    other = pickle.loads(data)
    assert isinstance(other, Buffers)
    assert not np.shares_memory(other.empty((1000,), np.int64), held)


def test_nothing_is_kept_where_counts_say_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "REUSES", False)
    pool = Buffers()
    reference = weakref.ref(pool.empty(SHAPE, np.int64))
    gc.collect()
    assert reference() is None


# Several threads.


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """What goes wrong in threads that begin together."""
    problems: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


@pytest.mark.usefixtures("fast_switches")
@pytest.mark.parametrize("num_shapes", [1, 3, 2 * SHAPES_KEPT])
def test_threads_never_have_the_same_array(num_shapes: int) -> None:
    """Each keeps its last ones, and sees in them what it wrote."""
    pool = Buffers()

    def work(number: int) -> None:
        kept: list[tuple[Any, int]] = []
        for turn in range(1500):
            value = number * 10_000 + turn
            array = pool.empty((32 + value % num_shapes,), np.int64)
            array[...] = value
            holder = (array, array[:], torch.from_numpy(array))[turn % 3]
            kept = [*kept[-(turn % 4) :], (holder, value)]
            del array, holder
            for each, expected in kept:
                assert (np.asarray(each) == expected).all()

    assert in_threads(8, work) == []


@pytest.mark.usefixtures("fast_switches")
def test_arrays_that_threads_hold_at_one_time_share_nothing() -> None:
    pool = Buffers()
    for _ in range(20):
        held: list[list[Any]] = [[] for _ in range(8)]

        def work(number: int, held: list[list[Any]] = held) -> None:
            held[number] += [pool.empty((16,), np.int64) for _ in range(6)]

        assert in_threads(8, work) == []
        places = [address(array) for arrays in held for array in arrays]
        assert len(set(places)) == len(places) == 48


@pytest.mark.usefixtures("fast_switches")
def test_threads_may_look_at_the_only_array_at_once() -> None:
    for _ in range(150):
        pool = Buffers()
        pool.empty(SHAPE, np.int64)

        def work(_: int, pool: Buffers = pool) -> None:
            for _ in range(300):
                pool.empty(SHAPE, np.int64)

        assert in_threads(4, work) == []


# Batches.


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    """20 steps of two rows, all of one shape."""
    dataset = digits(tmp_path, ["123456789"[number % 9] * (1 + number % 7) for number in range(40)])
    rows = [[(number, 0, 2 + number % 7)] for number in range(40)]
    plan = plan_of(tmp_path / "plan", dataset, rows, sequence_length=8)
    columns = ("input_ids", "labels", "position_ids", "cu_seqlens", "attention_mask")
    return open_batches(dataset, plan, batch_size=2, columns=columns, seed=1)


def test_batches_that_are_kept_never_change(batches: Batches) -> None:
    alone = [
        {name: array.tolist() for name, array in batches.batch(step).items()} for step in range(20)
    ]
    kept = all_batches(batches)
    again = [as_tensors(batch) for batch in all_batches(batches)]
    for found in (kept, again):
        assert [{name: each.tolist() for name, each in batch.items()} for batch in found] == alone
    arrays = [np.asarray(array) for batch in kept + again for array in batch.values()]
    spans = sorted((address(array), array.nbytes) for array in arrays)
    assert all(first + size <= second for (first, size), (second, _) in pairwise(spans))


def test_a_view_of_one_column_keeps_that_column_only(batches: Batches) -> None:
    view = torch.from_numpy(batches.batch(0)["input_ids"])[1]
    before = view.tolist()
    for step in range(1, 20):
        batches.batch(step)
    assert view.tolist() == before


@pytest.mark.usefixtures("fast_switches")
def test_batches_made_in_threads_are_those_made_in_turn(batches: Batches) -> None:
    expected = [batch["input_ids"].tolist() for batch in all_batches(batches)]
    kept = all_batches(batches)  # so that the pool is not empty
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        for step in range(number, 20, 4):
            found[step] = batches.batch(step)["input_ids"]

    assert in_threads(4, work) == []
    assert [found[step].tolist() for step in range(20)] == expected
    assert [batch["input_ids"].tolist() for batch in kept] == expected

"""PyTorch's DataLoader and torchdata's StatefulDataLoader: workers change nothing but speed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, product
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loading_kit import digits
from resume_kit import (
    PLANS,
    SHUFFLES,
    WORLD_SIZES,
    Open,
    Run,
    all_bytes,
    opener,
    put_together,
    resumed,
    through_json,
    write_corpora,
)

import tokenmill
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.load.columns import COLUMNS, Batch

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from tokenmill.load.loader import Loader, as_tensors  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create . worker processes:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Path]]:
    return write_corpora(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def run(corpora: dict[int, list[Path]]) -> Run:
    """Two epochs of one plan, on one rank and without workers."""
    return Run.of(opener(corpora[1], "packed"))


@pytest.fixture(scope="module")
def anew(corpora: dict[int, list[Path]]) -> Open:
    return opener(corpora[1], "packed")


def data_loader(loader: Loader, num_workers: int, method: str = "fork", **options) -> DataLoader:
    context = method if num_workers else None
    return loader.dataloader(num_workers, multiprocessing_context=context, **options)


def shut_down(iterator: Any) -> None:
    """End workers now: those that are left to be collected as garbage are waited for."""
    getattr(iterator, "_shutdown_workers", lambda: None)()


@contextmanager
def begun(workers: Any) -> Iterator[Iterator[Batch]]:
    """The batches of a data loader, whose workers end with the block."""
    iterator = iter(workers)
    try:
        yield iterator
    finally:
        shut_down(iterator)


def taken(
    ranks: list[tokenmill.Batches],
    num_workers: int,
    method: str = "fork",
    first: int = 0,
    stop: int | None = None,
) -> tuple[list[Batch], dict[str, Any]]:
    """Global batches [first, stop) through a DataLoader on each rank, and the state after them."""
    loaders = [Loader(each) for each in ranks]
    count = None if stop is None else stop - first
    parts = [list(islice(data_loader(each, num_workers, method), count)) for each in loaders]
    steps = list(zip(*parts, strict=True))
    found = [
        put_together(step_parts, ranks[0].rows_of_ranks(step)[1])
        for step, step_parts in enumerate(steps, first)
    ]
    return found, loaders[-1].state_dict(first + len(found))


# Ranks and workers change where a run is stopped.


def resumes_exactly(
    corpora: list[Path],
    plan: str,
    shuffle: str,
    stop: int,
    before: tuple[int, int],
    after: tuple[int, int],
    method: str = "fork",
) -> None:
    """`before` and `after` are numbers of ranks and of workers on each."""
    anew = opener(corpora, plan, shuffle=shuffle)
    run = Run.of(anew)
    found, state = taken(anew(before[0]), before[1], method, stop=stop)
    rest, _ = taken(resumed(anew, state, after[0]), after[1], method, first=stop)
    assert all_bytes(found) == all_bytes(run.batches[:stop])
    assert all_bytes(rest) == all_bytes(run.batches[stop:])
    assert state == {**run.states[stop], "ranks": before[0]}


@pytest.mark.parametrize(
    ("before", "after", "stop", "plan", "sources", "shuffle"),
    [  # every pair of values of two columns stands in some line
        ((1, 0), (8, 1), 1, "packed", 1, "global"),
        ((2, 1), (1, 2), 2, "packed", 3, "blocks"),
        ((3, 2), (2, 4), 3, "one piece a row", 1, "none"),
        ((4, 4), (3, 0), 4, "one piece a row", 3, "global"),
        ((8, 1), (4, 0), 5, "buckets", 1, "blocks"),
        ((1, 2), (2, 0), 6, "packed", 3, "none"),
        ((2, 4), (8, 2), 7, "buckets", 1, "global"),
        ((3, 0), (1, 4), 5, "packed", 1, "blocks"),
        ((4, 0), (2, 1), 1, "one piece a row", 3, "none"),
        ((1, 4), (3, 1), 0, "buckets", 1, "none"),
    ],
)
def test_ranks_and_workers_may_change(
    before: tuple[int, int],
    after: tuple[int, int],
    stop: int,
    plan: str,
    sources: int,
    shuffle: str,
    corpora: dict[int, list[Path]],
) -> None:
    resumes_exactly(corpora[sources], plan, shuffle, stop, before, after)


def test_workers_that_are_spawned_give_the_same(corpora: dict[int, list[Path]]) -> None:
    resumes_exactly(corpora[3], "packed", "global", 8, (1, 0), (1, 1), "spawn")


@pytest.mark.soak
@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize(
    ("plan", "sources"), [each for each in product(PLANS, (1, 3)) if each != ("buckets", 3)]
)
def test_any_ranks_and_workers_at_every_stop(
    plan: str, sources: int, shuffle: str, corpora: dict[int, list[Path]]
) -> None:
    anew = opener(corpora[sources], plan, shuffle=shuffle)
    run = Run.of(anew)
    for stop, world_size, num_workers in product(range(len(run)), WORLD_SIZES, (0, 1, 2, 4)):
        ranks = resumed(anew, run.states[stop], world_size)
        rest, _ = taken(ranks, num_workers, first=stop)
        assert all_bytes(rest) == all_bytes(run.batches[stop:])


# What a batch is, with a DataLoader or without.


def test_tensors_hold_what_arrays_do(anew: Open) -> None:
    (batches,) = anew(columns=tuple(COLUMNS))
    batch = batches.batch(0)
    tensors = as_tensors(batch)
    assert list(tensors) == list(batch)
    kinds = {name: value.dtype for name, value in tensors.items() if torch.is_tensor(value)}
    assert kinds == {
        "input_ids": torch.int64,
        "labels": torch.int64,
        "position_ids": torch.int64,
        "cu_seqlens": torch.int32,
        "segment_ids": torch.int32,
        "task_ids": torch.int64,
        "attention_mask": torch.int64,
        "loss_weights": torch.float32,
        "cu_seq_lens_q": torch.int32,
        "cu_seq_lens_k": torch.int32,
    }
    rest = {"max_seqlen", "num_targets", "segmentation", "max_length_q", "max_length_k"}
    rest |= {"use_cache"}
    assert set(batch) - set(kinds) == rest
    tensors["input_ids"][0, 0] = 9
    assert batch["input_ids"][0, 0] == 9  # no copy


# Iterating again.

GIVEN_OUT = "the batches of this loader have been returned already"


def test_a_loader_goes_on_where_a_loop_was_left(anew: Open, run: Run) -> None:
    loader = Loader(*anew())
    found = [*islice(loader, 2), *islice(loader, 3), *data_loader(loader, 0)]
    assert all_bytes(found) == all_bytes(run.batches)
    assert loader.state_dict() == run.states[-1]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("stop", [2, None])
def test_workers_begin_once_and_never_repeat_or_skip_batches_in_silence(
    stop: int | None, persistent: bool, method: str, anew: Open
) -> None:
    """The loader itself does not see what was taken from workers, so it is to be told."""
    loader = Loader(*anew())
    workers = data_loader(loader, 2, method, persistent_workers=persistent)
    list(islice(workers, stop))
    with pytest.raises(UserError, match=GIVEN_OUT), begun(workers) as again:
        list(again)


@pytest.mark.parametrize(
    ("num_workers", "persistent"), [(0, False), (1, False), (1, True), (2, False), (2, True)]
)
def test_where_it_was_asked_for_each_pass_is_the_same(
    num_workers: int, persistent: bool, anew: Open, run: Run
) -> None:
    """For evaluation."""
    loader = Loader(*anew(restart=True))
    options = {"persistent_workers": persistent} if num_workers else {}
    workers = data_loader(loader, num_workers, **options)
    for stop in (None, 2, None):
        assert all_bytes(islice(workers, stop)) == all_bytes(run.batches[:stop])


@pytest.mark.parametrize("name", ["batch_size", "shuffle", "sampler", "in_order", "drop_last"])
def test_what_joins_or_reorders_batches_is_no_option(name: str, anew: Open) -> None:
    options: dict[str, Any] = {name: None}
    with pytest.raises(UserError, match=rf"unknown option of dataloader\(\): {name}"):
        Loader(*anew()).dataloader(2, **options)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_a_loader_is_no_dataset_for_a_data_loader_of_somebody_elses(
    restart: bool, num_workers: int, anew: Open, run: Run
) -> None:
    loader = Loader(*anew(restart=restart))
    sizes: list[dict[str, Any]] = [{"batch_size": None}, {"batch_size": 4, "drop_last": True}]
    for options in ({}, *sizes, {"shuffle": True}):
        workers = DataLoader(loader, num_workers=num_workers, **options)
        refused = pytest.raises(UserError, match="cannot make a DataLoader from a tokenmill loader")
        with refused, begun(workers) as iterator:
            next(iterator)
    found = data_loader(loader, num_workers)
    assert all_bytes(found) == all_bytes(run.batches)


def test_a_state_without_a_step_is_refused_where_workers_made_the_batches(anew: Open) -> None:
    loader = Loader(*anew())
    assert loader.state_dict()["step"] == 0
    list(islice(data_loader(loader, 2), 3))
    with pytest.raises(UserError, match="cannot tell which step training has reached"):
        loader.state_dict()
    assert loader.state_dict(step=3)["step"] == 3


# Errors in workers.


@pytest.mark.parametrize("stop", [0, 4])
def test_after_a_worker_was_killed_the_rest_is_the_same(stop: int, anew: Open, run: Run) -> None:
    loader = Loader(*anew())
    found = []
    died = pytest.raises((RuntimeError, OSError, EOFError))  # PyTorch's, or of a connection it had
    with died, begun(data_loader(loader, 2, prefetch_factor=1)) as iterator:
        found += islice(iterator, stop)
        os.kill(active_children()[0].pid, signal.SIGKILL)
        for batch in iterator:
            found.append(batch)
    assert stop <= len(found) < len(run)
    state = loader.state_dict(step=len(found))
    rest, _ = taken(resumed(anew, state), 2, first=len(found))
    assert all_bytes(found + rest) == all_bytes(run.batches)


@pytest.mark.parametrize("method", ["fork"])
def test_damage_that_a_worker_finds_is_told_in_full(method: str, tmp_path: Path) -> None:
    dataset = digits(tmp_path / "corpus", ["1234567"] * 40)
    tokenmill.pack(dataset, name="only", sequence_length=8)
    loader = tokenmill.open(dataset.folder).loader(batch_size=4)
    path = dataset.shards[0].path("bin")
    path.write_bytes(b"\x03" + path.read_bytes()[1:])
    with (
        pytest.raises(VerificationError) as caught,
        begun(data_loader(loader, 2, method)) as iterator,
    ):
        next(iterator)
    message = str(caught.value)
    assert "a file of the dataset is damaged" in message
    assert f"where: {path}" in message
    assert "why: the digest of the block at byte 0 differs" in message
    assert "next: tokenmill verify lists what else is damaged" in message


# StatefulDataLoader.


@pytest.fixture
def stateful() -> Iterator[Callable[..., Any]]:
    pytest.importorskip("torchdata.stateful_dataloader")
    made = []

    def make(loader: Loader, num_workers: int, **options: Any) -> Any:
        made.append(loader.dataloader(num_workers, stateful=True, **options))
        return made[-1]

    yield make
    for workers in made:
        shut_down(workers._iterator)


OLD_TORCHDATA = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


@OLD_TORCHDATA
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("num_workers", [0, 1, 2, pytest.param(4, marks=pytest.mark.soak)])
def test_a_stateful_data_loader_resumes_where_it_was_stopped(
    num_workers: int, every: int, stateful: Callable[..., Any], anew: Open, run: Run
) -> None:
    """Its state is that of its workers, at the last snapshot, and the steps since then."""
    options = {"snapshot_every_n_steps": every}
    whole = stateful(Loader(*anew()), num_workers, **options)
    states = [whole.state_dict()]
    for step, batch in enumerate(whole):
        assert all_bytes([batch]) == all_bytes([run.batches[step]])
        states.append(whole.state_dict())
    for stop in range(0, len(run), 4):
        other = stateful(Loader(*anew()), num_workers, **options)
        other.load_state_dict(through_json(states[stop]))
        assert all_bytes(other) == all_bytes(run.batches[stop:])


@pytest.mark.parametrize(("num_workers", "here"), [(1, "1"), (4, "4"), (None, "none")])
def test_the_state_of_a_worker_is_for_one_of_as_many_workers(
    num_workers: int | None, here: str, anew: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def among(num_workers: int | None) -> Loader:
        info = SimpleNamespace(id=0, num_workers=num_workers) if num_workers else None
        monkeypatch.setattr("tokenmill.load.loader.get_worker_info", lambda: info)
        return Loader(*anew())

    loader = among(2)
    next(iter(loader))
    state = loader.state_dict()
    assert (state["step"], state["workers"]) == (2, 2)
    with pytest.raises(UserError) as caught:
        among(num_workers).load_state_dict(state)
    assert caught.value.what == "the state belongs to a worker of a DataLoader"
    assert caught.value.why == f"it was one of 2 workers; now there are {here}"
    assert caught.value.hint == "use the same num_workers, or resume from loader.state_dict(step)"


@OLD_TORCHDATA
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_with_a_stateful_data_loader_can_change_ranks_by_the_step(
    num_workers: int, stateful: Callable[..., Any], anew: Open, run: Run
) -> None:
    loader = Loader(*anew())
    assert all_bytes(islice(stateful(loader, num_workers), 5)) == all_bytes(run.batches[:5])
    rest, _ = taken(resumed(anew, loader.state_dict(step=5), world_size=3), 1, first=5)
    assert all_bytes(rest) == all_bytes(run.batches[5:])

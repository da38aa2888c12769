"""`stats()` of loaders: counts of the batches that were taken, the wait for them, the position."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loading_kit import PAD, digits
from resume_kit import opener, write_corpora

import tokenmill
from conftest import TEXTS, write_jsonl
from tokenmill import Curriculum, Dataset, FillInMiddle, Phase
from tokenmill.load import stats
from tokenmill.load.batches import Batches
from tokenmill.load.steps.mixture import MixtureSource

pytest.importorskip("torch")

from tokenmill.load.loader import Loader

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create . worker processes:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


class Clock:
    """A clock that only moves when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(stats, "clock", lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Twelve rows of 8 tokens: five tokens and an end of document, two tokens of padding."""
    dataset = digits(tmp_path_factory.mktemp("rows") / "rows", ["12345"] * 12)
    tokenmill.pack(dataset, name="only", sequence_length=8, max_segments=1)
    return tokenmill.open(dataset.folder)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Path]]:
    return write_corpora(tmp_path_factory.mktemp("corpora"))


def delayed(monkeypatch: pytest.MonkeyPatch, sleep: Any, seconds: float) -> None:
    """Have each batch take some time."""
    made = Batches._arrays

    def arrays(batches: Batches, whole: Any) -> Any:
        sleep(seconds)
        return made(batches, whole)

    monkeypatch.setattr(Batches, "_arrays", arrays)


# Counts.


@pytest.mark.parametrize("prefetch", [0, 2, 50])
def test_stats_are_one_flat_dict_of_what_was_taken(
    prefetch: int, rows: Dataset, clock: Clock
) -> None:
    """Batches that are prepared ahead do not count."""
    loader = rows.loader(batch_size=3, epochs=2, prefetch=prefetch)
    for _ in itertools.islice(loader, 5):
        clock.sleep(2)
    assert loader.stats() == {
        "step": 5,
        "epoch": 1.25,
        "steps": 5,
        "samples": 15,
        "tokens": 90,
        "padding": 30,
        "padding_share": 0.25,
        "wait_seconds": 0.0,
        "wait_share": 0.0,
        "bytes_fetched": 0,
    }


def test_a_loader_that_was_not_used_has_the_same_keys(rows: Dataset) -> None:
    plan = tokenmill.open_plan(rows, "only")
    source = MixtureSource(dataset=rows, plan=plan, name="web")
    for loader in (rows.loader(batch_size=3), tokenmill.mix([source], batch_size=3)):
        before = loader.stats()
        next(iter(loader))
        assert list(before) == list(loader.stats())
        assert not any(before.values())


def test_after_a_state_was_loaded_only_the_position_continues(rows: Dataset) -> None:
    first, second = (rows.loader(batch_size=3, epochs=2) for _ in range(2))
    list(itertools.islice(first, 3))
    second.load_state_dict(first.state_dict())
    next(iter(second))
    found = second.stats()
    assert (found["step"], found["epoch"]) == (4, 1.0)
    assert (found["steps"], found["samples"], found["tokens"]) == (1, 3, 18)


def test_numpy_batches_have_stats_and_steps_that_are_only_looked_at_do_not_count(
    rows: Dataset,
) -> None:
    batches = rows.batches(batch_size=3)
    batches.batch(2)
    batches.explain(1)
    next(iter(batches))
    found = batches.stats()
    assert (found["step"], found["steps"], found["tokens"]) == (1, 1, 18)


def counted(arrays: list[Any]) -> tuple[int, int]:
    """Tokens and padding in batches."""
    padding = sum(int((np.asarray(batch["input_ids"]) == PAD).sum()) for batch in arrays)
    return sum(batch["input_ids"].numel() for batch in arrays) - padding, padding


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("plan", "sources"), [("packed", 1), ("packed", 3), ("buckets", 1)])
def test_workers_count_what_was_taken_from_them(
    plan: str, sources: int, num_workers: int, corpora: dict[int, list[Path]]
) -> None:
    (batches,) = opener(corpora[sources], plan)()
    (other,) = opener(corpora[sources], plan)()
    loader, alone = Loader(batches), Loader(other, prefetch=0)
    taken = []
    pairs = zip(loader.dataloader(num_workers), alone, strict=True)
    for batch, _ in pairs:
        assert type(batch) is dict
        taken.append(batch)
        found = {**loader.stats(), "wait_seconds": 0, "wait_share": 0}
        assert found == {**alone.stats(), "wait_seconds": 0, "wait_share": 0}
        assert (found["tokens"], found["padding"]) == counted(taken)
    assert 1.8 < found["epoch"] <= 2


def test_a_mixture_tells_tokens_and_epochs_by_source(rows: Dataset) -> None:
    """A source without a name is called by its number."""
    plan = tokenmill.open_plan(rows, "only")
    sources = [
        MixtureSource(dataset=rows, plan=plan, share=2, name="web"),
        MixtureSource(dataset=rows, plan=plan, epochs=2),
        MixtureSource(dataset=rows, plan=plan, epochs=2),
    ]
    loader = tokenmill.mix(sources, global_batch_size=4)
    list(itertools.islice(loader, 2))
    found = loader.stats()
    assert found["epoch"] == 8 / 36
    assert {name: value for name, value in found.items() if "/" in name} == {
        "tokens/web": 24,
        "tokens/1": 12,
        "tokens/2": 12,
        "epochs/web": 4 / 12,
        "epochs/1": 2 / 12,
        "epochs/2": 2 / 12,
    }


def test_a_curriculum_counts_the_rows_that_it_cuts(rows: Dataset) -> None:
    plan = tokenmill.open_plan(rows, "only")
    curriculum = Curriculum.of_plan(plan, rows, batch_size=3, phases=(Phase(row_length=4),))
    batches = rows.batches(plan, curriculum=curriculum)
    next(iter(batches))
    found = batches.stats()
    assert (found["epoch"], found["samples"], found["tokens"]) == (0.25, 6, 18)


def test_workers_also_count_what_fill_in_the_middle_did(tmp_path: Path) -> None:
    dataset = digits(tmp_path / "digits", ["12345678"] * 40)
    plan = tokenmill.pack(dataset, sequence_length=32, reserve=4).plan
    rule = FillInMiddle(prefix=1, middle=2, suffix=3)
    found = []
    for num_workers in (0, 2):
        loader = dataset.loader(plan, batch_size=2, fill_in_middle=rule)
        list(loader.dataloader(num_workers))
        found.append(loader.batches.filled_in_middle)
    assert found[0] == found[1]
    assert sum(found[0].values()) == 40


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_text_stream_has_stats(num_workers: int, tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    loader = tokenmill.text_loader(
        path, tokenizer_path, sequence_length=64, batch_size=2, epochs=2, dropout=0.1
    )
    taken = list(loader.dataloader(num_workers))
    found = loader.stats()
    assert list(found)[:4] == ["steps", "samples", "tokens", "padding"]
    assert found["steps"] == len(taken)
    assert found["samples"] == 2 * len(taken)
    assert found["tokens"] + found["padding"] == 64 * found["samples"]


# The wait.


def test_the_wait_is_the_time_between_asking_and_getting(
    rows: Dataset, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch, which the trainer waits for before any step, is not in the share."""
    delayed(monkeypatch, clock.sleep, 0.02)
    loader = rows.loader(batch_size=1, epochs=None, prefetch=0)
    iterator = iter(loader)
    clock.sleep(5)
    next(iterator)
    assert loader.stats()["wait_seconds"] == pytest.approx(0.02)
    assert loader.stats()["wait_share"] == 0
    for _ in range(10):
        clock.sleep(0.08)
        next(iterator)
    assert loader.stats()["wait_seconds"] == pytest.approx(11 * 0.02)
    assert loader.stats()["wait_share"] == pytest.approx(0.2)


def test_the_share_of_waiting_is_that_of_the_last_hundred_steps(
    rows: Dataset, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = iter([3.0] * 101 + [1.0] * 100)
    delayed(monkeypatch, lambda _: clock.sleep(next(delays)), 0)
    loader = rows.loader(batch_size=1, epochs=None, prefetch=0)
    iterator = iter(loader)
    shares = []
    for steps in (101, 50, 50):
        for _ in range(steps):
            clock.sleep(1)
            next(iterator)
        shares.append(loader.stats()["wait_share"])
    assert shares == pytest.approx([3 / 4, 200 / 300, 1 / 2])
    assert loader.stats()["wait_seconds"] == pytest.approx(3 * 101 + 100)


@pytest.mark.parametrize(("prefetch", "num_workers"), [(0, 0), (2, 0), (2, 1)])
def test_the_wait_is_that_which_the_trainer_measures(
    prefetch: int, num_workers: int, rows: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look at a clock at the same time, so that a busy machine cannot tell them apart."""
    delayed(monkeypatch, time.sleep, 0.02)
    loader = rows.loader(batch_size=1, prefetch=prefetch)
    iterator = iter(loader.dataloader(num_workers) if num_workers else loader)
    waited = 0.0
    for _ in range(12):
        begun = time.perf_counter()
        next(iterator)
        waited += time.perf_counter() - begun
        time.sleep(0.005)
    del iterator
    found = loader.stats()["wait_seconds"]
    assert found == pytest.approx(waited, rel=0.05)
    assert found > 12 * 0.014

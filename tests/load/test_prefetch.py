"""A thread makes batches ahead: batches, states and errors are those of a loader without it."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loading_kit import digits
from resume_kit import Open, Run, all_bytes, opener, write_corpora

import tokenmill
from tokenmill import Curriculum, FillInMiddle, Phase
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.load.batches import Batches

torch = pytest.importorskip("torch")

from tokenmill.load.loader import Loader  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_thread_stays")


def running() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "tokenmill-batches"]


@pytest.fixture
def no_thread_stays() -> Iterator[None]:
    yield
    assert running() == []


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Path]]:
    return write_corpora(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def anew(corpora: dict[int, list[Path]]) -> Open:
    """Two epochs of one plan."""
    return opener(corpora[1], "packed")


@pytest.fixture(scope="module")
def run(anew: Open) -> Run:
    return Run.of(anew)


@pytest.mark.parametrize("prefetch", [1, 2, 100])
@pytest.mark.parametrize(("plan", "sources"), [("packed", 1), ("packed", 3), ("buckets", 1)])
def test_batches_and_states_are_those_without_a_thread(
    plan: str, sources: int, prefetch: int, corpora: dict[int, list[Path]]
) -> None:
    anew = opener(corpora[sources], plan)
    run = Run.of(anew)
    loader = Loader(*anew(), prefetch)
    for step, batch in enumerate(loader):
        assert all_bytes([batch]) == all_bytes([run.batches[step]])
        assert loader.step == step + 1
        assert loader.state_dict() == run.states[step + 1]
    assert loader.step == len(run)


def test_a_state_of_any_step_may_be_loaded_within_the_loop(anew: Open, run: Run) -> None:
    loader = Loader(*anew())
    found, jumps = [], {2: 6, 7: 1, 4: 4}
    for batch in loader:
        found.append(batch)
        if (jump := jumps.pop(loader.step, None)) is not None:
            loader.load_state_dict(run.states[jump])
    steps = [0, 1, 6, 1, 2, 3, *range(4, len(run))]
    assert all_bytes(found) == all_bytes([run.batches[step] for step in steps])


def test_the_report_of_a_mixture_is_that_of_the_batches_that_were_taken(
    corpora: dict[int, list[Path]],
) -> None:
    anew = opener(corpora[3], "packed")
    reports = [
        [list(batches.schedule.report()) for _ in loader]
        for prefetch in (0, 3)
        for batches in anew()
        for loader in [Loader(batches, prefetch)]
    ]
    assert reports[0] == reports[1]
    assert len(reports[0]) > 5


def test_a_phase_that_is_added_within_the_loop_counts_at_once(anew: Open) -> None:
    def lengths(prefetch: int) -> list[Any]:
        (batches,) = anew()
        dataset = batches._sources[0].dataset
        plan = tokenmill.open_plan(dataset, "packed")
        curriculum = Curriculum.of_plan(plan, dataset, batch_size=4)
        loader = Loader(dataset.batches(plan, curriculum=curriculum), prefetch)
        found = []
        for batch in loader:
            found.append(batch["input_ids"].tolist())
            if loader.step == 3:
                curriculum.change(Phase(first_step=4, by="length", row_length=8))
        return found

    assert lengths(2) == lengths(0)
    assert len(lengths(2)[4]) == 8  # rows, twice as many


def test_what_fill_in_the_middle_did_counts_batches_that_were_taken(tmp_path: Path) -> None:
    dataset = digits(tmp_path / "digits", ["12345678"] * 40)
    plan = tokenmill.pack(dataset, sequence_length=32, reserve=4).plan
    rule = FillInMiddle(prefix=1, middle=2, suffix=3)
    counts = []
    for prefetch in (0, 5):
        batches = dataset.batches(plan, batch_size=2, fill_in_middle=rule)
        counts.append([batches.filled_in_middle for _ in Loader(batches, prefetch)])
    assert counts[0] == counts[1]
    assert len(counts[0]) > 5


def failing_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the batch of a step raise an error."""
    made = Batches._arrays

    def arrays(batches: Batches, whole: Any) -> Any:
        if batches.step == step:
            raise VerificationError("damaged", where="here")
        return made(batches, whole)

    monkeypatch.setattr(Batches, "_arrays", arrays)


def test_an_error_is_raised_at_its_batch_each_time(
    anew: Open, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_at(3, monkeypatch)
    loader = Loader(*anew(), 10)
    found: list[Any] = []
    for _ in range(2):
        with pytest.raises(VerificationError, match="damaged"):
            found.extend(loader)
        assert loader.state_dict() == run.states[3]
    assert all_bytes(found) == all_bytes(run.batches[:3])


def test_an_exception_in_the_loop_ends_the_thread(anew: Open) -> None:
    def train() -> None:
        for _ in Loader(*anew()):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_goes_on_with_a_thread_of_its_own(anew: Open, run: Run) -> None:
    iterator = iter(Loader(*anew()))
    next(iterator)
    read, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, str(all_bytes(iterator) == all_bytes(run.batches[1:])).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 5) == b"True"
    assert all_bytes(iterator) == all_bytes(run.batches[1:])


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds() and time.monotonic() < end:
        time.sleep(0.001)


def test_no_more_batches_are_made_ahead_than_asked_for(
    anew: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, made = [], Batches._arrays

    def arrays(batches: Batches, whole: Any) -> Any:
        steps.append(batches.step)
        return made(batches, whole)

    monkeypatch.setattr(Batches, "_arrays", arrays)
    iterator = iter(Loader(*anew(), 3))
    for taken in (1, 2):
        next(iterator)
        until(lambda: len(steps) >= 3 + taken)  # noqa: B023
        time.sleep(0.05)
        assert steps == list(range(3 + taken))
    del iterator


@pytest.mark.parametrize("prefetch", [1, 2])
def test_a_batch_that_was_taken_is_kept_by_nobody_else(prefetch: int, anew: Open) -> None:
    iterator = iter(Loader(*anew(), prefetch))
    for _ in range(3):
        kept = weakref.ref(next(iterator)["input_ids"])
        assert kept() is None
    del iterator


@pytest.mark.parametrize("prefetch", [-1, 1.5, True, "2"])
def test_prefetch_is_a_number_of_batches(prefetch: Any, anew: Open) -> None:
    with pytest.raises(UserError, match="invalid loader option") as error:
        Loader(*anew(), prefetch)
    assert error.value.why == f"prefetch must be an integer of 0 or more, got {prefetch!r}"


# Pinned memory.


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("pin_memory", [None, True, False])
def test_memory_is_pinned_for_the_gpu_of_the_trainer(
    pin_memory: bool | None, prefetch: int, anew: Open, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA is made up here: what is pinned, by which thread and for which GPU."""
    pinned, devices = set(), set()

    def pin(tensor: Any) -> Any:
        pinned.add(threading.current_thread().name)
        return tensor.clone()

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 5)
    monkeypatch.setattr(torch.cuda, "set_device", devices.add)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    threads = torch.get_num_threads()
    found = list(Loader(*anew(), prefetch, pin_memory))
    assert all_bytes(found) == all_bytes(run.batches)
    by = "tokenmill-batches" if prefetch else "MainThread"
    assert pinned == (set() if pin_memory is False else {by})
    assert devices == ({5} if prefetch and pin_memory is not False else set())
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_process_that_cannot_use_cuda_since_it_was_forked_gets_plain_tensors(
    prefetch: int, anew: Open, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert all_bytes(Loader(*anew(), prefetch)) == all_bytes(run.batches)
    with pytest.raises(UserError, match="cannot pin memory") as error:
        next(iter(Loader(*anew(), prefetch, pin_memory=True)))
    assert error.value.why == "this process was forked from one that has used CUDA"

"""Batches as PyTorch tensors: for a training loop, a DataLoader or a trainer."""

from __future__ import annotations

import mmap
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from multiprocessing.context import get_spawning_popen
from typing import Any, NoReturn, TypedDict, Unpack

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tokenmill.core.errors import UserError
from tokenmill.load.background import PREFETCH, prefetched
from tokenmill.load.batches import Batches
from tokenmill.load.columns import Batch
from tokenmill.load.rows.provenance import SegmentOrigin
from tokenmill.load.stats import CountedBatch, Meter, Timed


class DataLoaderOptions(TypedDict, total=False):
    """Options of a DataLoader that do not change batches or their order."""

    pin_memory: bool
    prefetch_factor: int
    """Number of batches that each worker prepares in advance."""
    persistent_workers: bool
    multiprocessing_context: str | None
    """"fork", "forkserver" or "spawn"."""
    timeout: float
    """Seconds to wait for a batch."""
    snapshot_every_n_steps: int
    """Option of a `StatefulDataLoader`."""


class TensorSource(ABC):
    """Batches of one rank as tensors. Iterate over it, or call `dataloader()`.

    It is not a PyTorch dataset: a DataLoader with a batch size would stack its batches, and one
    with a sampler would change their order.
    """

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over batches of tensors, starting with the next one.

        Raises:
            UserError: all batches have been returned already.
        """
        return self.tensors()

    def __getitem__(self, index: object) -> NoReturn:
        """Raise an error: only a DataLoader with this object as its dataset calls this.

        Raises:
            UserError: always.
        """
        raise UserError(
            "cannot make a DataLoader from a tokenmill loader",
            why="its items are complete batches in a fixed order, which a DataLoader would join or "
            "shuffle",
            hint="call loader.dataloader(); for a Hugging Face Trainer, return it "
            "from get_train_dataloader",
        )

    def dataloader(
        self,
        num_workers: int = 0,
        *,
        stateful: bool = False,
        **options: Unpack[DataLoaderOptions],
    ) -> DataLoader[Batch]:
        """Return a DataLoader that yields these batches in order.

        Args:
            num_workers: number of processes that prepare batches. With 0, the calling process does.
            stateful: return a `StatefulDataLoader` of torchdata, which keeps its workers' states.
            options: further options of the DataLoader.

        Raises:
            UserError: an option is not allowed, because it could split, join or reorder batches.
        """
        known = sorted(DataLoaderOptions.__annotations__)
        if unknown := sorted(set(options) - set(known)):
            raise UserError(
                f"unknown option of dataloader(): {', '.join(unknown)}",
                why=f"the options are {', '.join(known)}",
                hint="set the size and the order of batches in the loader",
            )
        kind: Any = _TimedDataLoader
        if stateful:
            whole = import_module("torchdata.stateful_dataloader").StatefulDataLoader
            kind = type(whole.__name__, (_TimedDataLoader, whole), {})
        made: DataLoader[Batch] = kind(
            _Batches(self), batch_size=None, num_workers=num_workers, **options
        )
        return made

    meter: Meter
    """Counts what is handed out, for `stats`."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def world_size(self) -> int:
        """Ranks that share each global batch."""

    @abstractmethod
    def tensors(self) -> Iterator[Batch]:
        """Yield batches from the next one on; in a worker of a DataLoader, only that worker's."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume at the next batch."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state."""


class _Batches(IterableDataset[Batch]):
    """The batches of a source, for its DataLoader."""

    def __init__(self, source: TensorSource) -> None:
        self._source, self.meter = source, source.meter

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Batch]:
        self._refuse_to_be_dispatched()
        return self._source.tensors()

    def __getstate__(self) -> dict[str, Any]:
        """Check in the parent of a spawned worker, where the caller is known."""
        self._refuse_to_be_dispatched()
        return self.__dict__

    def state_dict(self) -> dict[str, Any]:
        return self._source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._source.load_state_dict(state)

    def _refuse_to_be_dispatched(self) -> None:
        """Raise a UserError if Accelerate is splitting the first rank's batches among all ranks."""
        state = sys.modules.get("accelerate.state")
        dispatching = sys.modules.get("accelerate.data_loader")
        if self._source.world_size == 1 or state is None or dispatching is None:
            return
        active = state.GradientState().active_dataloader
        is_dispatcher = isinstance(active, dispatching.DataLoaderDispatcher)
        if is_dispatcher and getattr(active, "dataset", None) is self:
            raise UserError(
                "Accelerate would split the batches of the first rank among all ranks",
                why="each rank has its own loader already, so the rows of the others would be lost",
                hint="do not pass the DataLoader to accelerator.prepare",
            )


class _TimedDataLoader(DataLoader[Batch]):
    """A DataLoader that measures the wait for the batches of its workers."""

    def __iter__(self) -> Any:
        batches, dataset = super().__iter__(), self.dataset
        assert isinstance(dataset, _Batches)
        return Timed(batches, dataset.meter) if self.num_workers else batches


class Passes:
    """Remembers whether workers have begun a pass. A second one would repeat the same batches.

    The mark is in memory shared with forked workers, and is sent to spawned ones.
    """

    def __init__(self, begun: int = 0) -> None:
        self._mark = mmap.mmap(-1, 1)
        self._mark[0] = begun

    @property
    def has_begun(self) -> bool:
        """Whether workers have begun a pass."""
        return bool(self._mark[0])

    def begin(self) -> None:
        """Mark, in a worker, that a pass has begun.

        Raises:
            UserError: a pass has begun already.
        """
        self.refuse_another()
        self._mark[0] = 1

    def refuse_another(self) -> None:
        """Raise a UserError if a pass has begun."""
        if self.has_begun:
            raise UserError(
                "the batches of this loader have been returned already",
                why="another pass would repeat the same batches in the same order",
                hint="ask for more epochs, load a state to start elsewhere, or set restart=True "
                "to repeat the same pass",
            )

    def forget(self) -> None:
        """Allow another pass, because a state was loaded."""
        self._mark[0] = 0

    def __reduce__(self) -> tuple[type[Passes], tuple[int]]:
        found = self._mark[0]
        if get_spawning_popen() is not None:  # a spawned worker shares no memory with this process
            self._mark[0] = 1
        return type(self), (found,)


class Loader(TensorSource):
    """The batches of one rank. A thread prepares the next ones while the trainer computes.

    With `loader.dataloader(n)`, each worker process prepares every n-th batch, and the DataLoader
    puts them in order. To save a state then, pass the trainer's step: `state_dict(step)`. With
    `stateful=True`, the DataLoader keeps the states of its workers.

    Args:
        batches: the batches to return.
        prefetch: number of batches that the thread prepares in advance. With 0, there is no thread.
        pin_memory: whether tensors are in pinned memory. None: if CUDA is available.

    Raises:
        UserError: `prefetch` is not an integer of 0 or more.
    """

    def __init__(
        self, batches: Batches, prefetch: int = PREFETCH, pin_memory: bool | None = None
    ) -> None:
        if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 0:
            why = f"prefetch must be an integer of 0 or more, got {prefetch!r}"
            raise UserError("invalid loader option", why=why)
        self.batches, self.meter = batches, batches.meter
        self._prefetch, self._pin_memory = prefetch, pin_memory
        self._passes = Passes()
        self._bytes_counted = 0
        """In a worker: bytes that its batches have counted as fetched."""
        self._worker_step: int | None = None
        """In a worker: the step of its next batch, once it has started or resumed."""

    def __len__(self) -> int:
        """Number of steps in total, including those already taken."""
        return len(self.batches)

    def __repr__(self) -> str:
        return repr(self.batches).replace("Batches", "Loader", 1)

    def _repr_html_(self) -> str:
        """Return a table and the progress, for notebooks."""
        return self.batches.card("Loader")

    @property
    def world_size(self) -> int:
        """Ranks that share each global batch."""
        return self.batches.world_size

    def tensors(self) -> Iterator[Batch]:
        """Yield batches from the next step on; in a worker of a DataLoader, only that worker's."""
        worker = get_worker_info()
        if worker is None:
            return Timed(self._own_tensors(), self.meter)
        return self._tensors_of_worker(worker)

    def _own_tensors(self) -> Iterator[Batch]:
        if not self.batches.order.restart:
            self._passes.refuse_another()
        finish = self._finish()
        if self._prefetch:
            yield from prefetched(self.batches, self._prefetch, finish)
        else:
            self.batches.begin_pass()
            yield from map(finish, iter(self.batches.advance, None))

    def _tensors_of_worker(self, worker: Any) -> Iterator[Batch]:
        if self.batches.order.restart:
            self._worker_step = worker.id
        elif worker.id == 0:
            self._passes.begin()
        if self._worker_step is None:
            self._worker_step = self.batches.step + worker.id
        self.meter.take_counts()  # a forked worker has those of the process that trains
        for batch in self.batches.every(worker.num_workers, self._worker_step):
            counts, fetched = self.meter.take_counts(), self.batches.bytes_fetched
            counts["bytes_fetched"] = fetched - self._bytes_counted
            self._bytes_counted = fetched
            place = self._worker_step + 1, self.batches.schedule.standing()
            self._worker_step += worker.num_workers
            yield CountedBatch(as_tensors(batch), counts, place)

    def _finish(self) -> Callable[[Batch], Batch]:
        """Return the function that turns each batch into tensors, in the thread if there is one."""
        why = "" if torch.cuda.is_available() else "CUDA is not available"
        if torch.cuda._is_in_bad_fork():
            why = "this process was forked from one that has used CUDA"
        if self._pin_memory and why:
            hint = "omit pin_memory: it is on by default if CUDA is available"
            raise UserError("cannot pin memory", why=why, hint=hint)
        return as_tensors if self._pin_memory is False or why else _Pinning()

    @property
    def step(self) -> int:
        """The step of the next batch."""
        return self.batches.step

    def stats(self) -> dict[str, float]:
        """Return counts and waits as one flat dict, ready for a tracker: see `Batches.stats`."""
        return self.batches.stats()

    def explain(self, step: int) -> list[SegmentOrigin]:
        """Return the origin of every segment in a step: see `Batches.explain`."""
        return self.batches.explain(step)

    def digest(self, step: int) -> str:
        """Return the SHA-256 of the global batch of a step: see `Batches.digest`."""
        return self.batches.digest(step)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Change shares of a mixture from the next step on: see `Batches.set_shares`.

        Batches that were prepared in advance are prepared again.

        Raises:
            UserError: there is no such source, or workers of a DataLoader prepare the batches.
        """
        if get_worker_info() is not None or self._passes.has_begun:
            why = "workers of a DataLoader have prepared the next batches already"
            hint = "iterate over the loader itself: its thread prepares batches, too"
            raise UserError("cannot set shares", why=why, hint=hint)
        self.batches.set_shares(shares)

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Return the state to resume at a step, by default the next: see `Batches.state_dict`."""
        worker = get_worker_info()
        if worker is None:
            if step is None and self._passes.has_begun:
                raise UserError(
                    "cannot tell which step training has reached",
                    why="workers of a DataLoader prepared the batches",
                    hint="pass the trainer's step, state_dict(step), or use dataloader(n, "
                    "stateful=True)",
                )
            return self.batches.state_dict(step)
        next_step = self.batches.step + worker.id
        if self._worker_step is not None:
            next_step = self._worker_step
        return {**self.batches.state_dict(next_step), "workers": worker.num_workers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state: see `Batches.load_state_dict`.

        Raises:
            UserError: the state belongs to another loader, or to another number of workers.
        """
        workers = None
        if isinstance(state, dict):
            state = dict(state)
            workers = state.pop("workers", None)
        worker = get_worker_info()
        num_workers = None if worker is None else worker.num_workers
        if workers is not None and workers != num_workers:
            raise UserError(
                "the state belongs to a worker of a DataLoader",
                why=f"it was one of {workers} workers; now there are {num_workers or 'none'}",
                hint="use the same num_workers, or resume from loader.state_dict(step)",
            )
        self.batches.load_state_dict(state)
        self._worker_step = None if workers is None else self.batches.step
        self._passes.forget()


def as_tensors(batch: Batch) -> Batch:
    """Return a batch with tensors that share the memory of its arrays."""
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in batch.items()
    }


class _Pinning:
    """Copies batches to pinned memory of the caller's GPU, from any thread.

    In a process forked from the caller's, which cannot use CUDA, they are only made tensors.
    """

    def __init__(self) -> None:
        self._caller, self._device = threading.get_ident(), torch.cuda.current_device()

    def __call__(self, batch: Batch) -> Batch:
        if torch.cuda._is_in_bad_fork():
            return as_tensors(batch)
        if threading.get_ident() != self._caller:
            torch.cuda.set_device(self._device)  # else the thread would start GPU 0 in every rank
            torch.set_num_threads(1)  # in this thread only; the trainer keeps its own
        return {
            name: value.pin_memory() if isinstance(value, torch.Tensor) else value
            for name, value in as_tensors(batch).items()
        }


def leak(model: Any, one: Batch, other: Batch, *, first: int) -> float:
    """Return how much the logits from token `first` on change, relative to those before it.

    Args:
        model: a model of transformers. It runs in evaluation mode; its mode is restored.
        one: a batch of a few tokens, as passed to the model.
        other: the same batch with other tokens before `first`.
        first: position at which the second document of each row starts.
    """
    was_training = model.training
    model.eval()  # without dropout
    try:
        with torch.no_grad():
            found, changed = (model(**_on(model.device, batch)).logits for batch in (one, other))
    finally:
        model.train(was_training)
    differences = (found - changed).abs().float()
    own = differences[:, :first].max()
    return float(differences[:, first:].max() / own)


def _on(device: torch.device, batch: Batch) -> Batch:
    return {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }

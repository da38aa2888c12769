"""Batches as PyTorch tensors: for a training loop, a DataLoader or a trainer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from tokenmill.core.errors import UserError
from tokenmill.load.background import PREFETCH, prefetched
from tokenmill.load.batches import Batches
from tokenmill.load.columns import Batch
from tokenmill.load.explanation import SegmentOrigin
from tokenmill.load.frameworks import Passes, TensorSource


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
        self.batches = batches
        self._prefetch, self._pin_memory = prefetch, pin_memory
        self._passes = Passes()
        self._worker_step: int | None = None
        """In a worker: the step of its next batch, once it has started or resumed."""

    def __len__(self) -> int:
        """Number of steps in total, including those already taken."""
        return len(self.batches)

    @property
    def world_size(self) -> int:
        """Ranks that share each global batch."""
        return self.batches.share.world_size

    def tensors(self) -> Iterator[Batch]:
        """Yield batches from the next step on; in a worker of a DataLoader, only that worker's."""
        worker = get_worker_info()
        if worker is None:
            if not self.batches.share.restart:
                self._passes.refuse_another()
            finish = self._finish()
            if self._prefetch:
                yield from prefetched(self.batches, self._prefetch, finish)
            else:
                yield from map(finish, self.batches)
            return
        if self.batches.share.restart:
            self._worker_step = worker.id
        elif worker.id == 0:
            self._passes.begin()
        if self._worker_step is None:
            self._worker_step = self.batches.step + worker.id
        for batch in self.batches.every(worker.num_workers, self._worker_step):
            self._worker_step += worker.num_workers
            yield as_tensors(batch)

    def _finish(self) -> Callable[[Batch], Batch]:
        """Return the function that turns each batch into tensors, in the thread if there is one."""
        has_cuda = torch.cuda.is_available()
        if self._pin_memory and not has_cuda:
            hint = "omit pin_memory: it is on by default if CUDA is available"
            raise UserError("cannot pin memory", why="CUDA is not available", hint=hint)
        return as_tensors if self._pin_memory is False or not has_cuda else _Pinning()

    @property
    def step(self) -> int:
        """The step of the next batch."""
        return self.batches.step

    def explain(self, step: int) -> list[SegmentOrigin]:
        """Return the origin of every segment in a step: see `Batches.explain`."""
        return self.batches.explain(step)

    def digest(self, step: int) -> str:
        """Return the SHA-256 of the global batch of a step: see `Batches.digest`."""
        return self.batches.digest(step)

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
    """Copies batches to pinned memory of the caller's GPU, from any thread."""

    def __init__(self) -> None:
        self._caller, self._device = threading.get_ident(), torch.cuda.current_device()

    def __call__(self, batch: Batch) -> Batch:
        if threading.get_ident() != self._caller:
            torch.cuda.set_device(self._device)  # else the thread would start GPU 0 in every rank
            torch.set_num_threads(1)  # in this thread only; the trainer keeps its own
        return {
            name: value.pin_memory() if isinstance(value, torch.Tensor) else value
            for name, value in as_tensors(batch).items()
        }

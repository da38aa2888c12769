"""Batches as PyTorch tensors: an iterable dataset for a bare loop, a DataLoader, or a trainer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from tokenmill.errors import UserError
from tokenmill.load.background import PREFETCH, prefetched
from tokenmill.load.batches import Batches
from tokenmill.load.columns import Batch
from tokenmill.load.explanation import SegmentOrigin
from tokenmill.load.frameworks import Passes, TensorSource


class Loader(TensorSource):
    """The batches of one rank; a thread makes the next ones while the trainer computes.

    Of the workers of `loader.dataloader(n)` each makes every n-th batch, without a thread, and the
    DataLoader puts them into their order. The state then is that of the trainer's own step:
    `state_dict(step)`; with `stateful=True`, the DataLoader keeps those of its workers.

    Args:
        batches: what is given out.
        prefetch: batches that the thread makes ahead; 0: there is no thread.
        pin_memory: whether tensors are in pinned memory; None: if CUDA is available.

    Raises:
        UserError: `prefetch` is no number of batches.
    """

    def __init__(
        self, batches: Batches, prefetch: int = PREFETCH, pin_memory: bool | None = None
    ) -> None:
        if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 0:
            why = f"prefetch={prefetch!r}; it counts batches, from 0 on"
            raise UserError("invalid loader option", why=why)
        self.batches = batches
        self._prefetch, self._pin_memory = prefetch, pin_memory
        self._passes = Passes()
        self._worker_step: int | None = None
        """In a worker: the step of its next batch, once it has begun or been resumed."""

    def __len__(self) -> int:
        """Steps from the first to the last, whichever comes next."""
        return len(self.batches)

    @property
    def world_size(self) -> int:
        """Ranks that share each global batch."""
        return self.batches.share.world_size

    def tensors(self) -> Iterator[Batch]:
        """Batches from the next step on; in a worker, every one that it has to make."""
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
        """What is done with each batch, in the thread if there is one."""
        has_cuda = torch.cuda.is_available()
        if self._pin_memory and not has_cuda:
            hint = "leave pin_memory out: it is on wherever CUDA is"
            raise UserError("cannot pin memory", why="CUDA is not available", hint=hint)
        return as_tensors if self._pin_memory is False or not has_cuda else _Pinning()

    @property
    def step(self) -> int:
        """The step whose batch comes next."""
        return self.batches.step

    def explain(self, step: int) -> list[SegmentOrigin]:
        """What the batches of a step are made of: see `Batches.explain`."""
        return self.batches.explain(step)

    def digest(self, step: int) -> str:
        """SHA-256 of the global batch of a step: see `Batches.digest`."""
        return self.batches.digest(step)

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """What is needed to go on at a step, by default the next one: see `Batches.state_dict`."""
        worker = get_worker_info()
        if worker is None:
            if step is None and self._passes.has_begun:
                raise UserError(
                    "cannot tell how far training has come",
                    why="workers of a DataLoader made the batches",
                    hint="state_dict(step) with the trainer's own step, or a StatefulDataLoader",
                )
            return self.batches.state_dict(step)
        next_step = self.batches.step + worker.id
        if self._worker_step is not None:
            next_step = self._worker_step
        return {**self.batches.state_dict(next_step), "workers": worker.num_workers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was taken: see `Batches.load_state_dict`.

        Raises:
            UserError: it is of another loader, or of a worker among another number of them.
        """
        workers = None
        if isinstance(state, dict):
            state = dict(state)
            workers = state.pop("workers", None)
        worker = get_worker_info()
        num_workers = None if worker is None else worker.num_workers
        if workers is not None and workers != num_workers:
            raise UserError(
                "the state is of a worker",
                why=f"it was one of {workers}, and here are {num_workers or 'none'}",
                hint="keep num_workers, or resume with loader.state_dict(step)",
            )
        self.batches.load_state_dict(state)
        self._worker_step = None if workers is None else self.batches.step
        self._passes.forget()


def as_tensors(batch: Batch) -> Batch:
    """A batch with tensors in place of arrays, which share their memory."""
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in batch.items()
    }


class _Pinning:
    """Copies batches to memory that a GPU reads by itself: that of the caller, in any thread."""

    def __init__(self) -> None:
        self._caller, self._device = threading.get_ident(), torch.cuda.current_device()

    def __call__(self, batch: Batch) -> Batch:
        if threading.get_ident() != self._caller:
            torch.cuda.set_device(self._device)  # else a thread would wake up GPU 0 in every rank
            torch.set_num_threads(1)  # of this thread; the others belong to the trainer
        return {
            name: value.pin_memory() if isinstance(value, torch.Tensor) else value
            for name, value in as_tensors(batch).items()
        }

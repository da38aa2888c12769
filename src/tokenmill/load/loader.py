"""Batches as PyTorch tensors: an iterable dataset for a bare loop, a DataLoader, or a trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from tokenmill.errors import UserError
from tokenmill.load.batches import Batches
from tokenmill.load.columns import Batch
from tokenmill.load.explanation import SegmentOrigin
from tokenmill.load.frameworks import Passes, TensorSource


class Loader(TensorSource):
    """The batches of one rank.

    Of the workers of `loader.dataloader(n)` each makes every n-th batch, and the DataLoader puts
    them into their order. The state then is that of the trainer's own step: `state_dict(step)`;
    with `stateful=True`, the DataLoader keeps those of its workers.
    """

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
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
            for batch in self.batches:
                yield as_tensors(batch)
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

"""What a DataLoader is given, and what would divide or join batches that are whole already."""

from __future__ import annotations

import mmap
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from multiprocessing.context import get_spawning_popen
from typing import Any, NoReturn, TypedDict, Unpack

from torch.utils.data import DataLoader, IterableDataset

from tokenmill.errors import UserError
from tokenmill.load.columns import Batch


class DataLoaderOptions(TypedDict, total=False):
    """Options of a DataLoader that leave batches and their order as they are."""

    pin_memory: bool
    prefetch_factor: int
    """Batches that each worker makes ahead."""
    persistent_workers: bool
    multiprocessing_context: str | None
    """"fork", "forkserver" or "spawn"."""
    timeout: float
    """Seconds to wait for a batch."""
    snapshot_every_n_steps: int
    """Of a `StatefulDataLoader`."""


class TensorSource(ABC):
    """Batches of one rank as tensors: to loop over, or for the DataLoader that it makes.

    It is not a PyTorch dataset: a DataLoader with a batch size would stack its batches, and one
    with a sampler would change their order.
    """

    def __iter__(self) -> Iterator[Batch]:
        """Batches from the next one on, as tensors.

        Raises:
            UserError: all have been given out.
        """
        return self.tensors()

    def __getitem__(self, index: object) -> NoReturn:
        """Refused: only a DataLoader that takes the loader for a dataset of examples asks for it.

        Raises:
            UserError: always.
        """
        raise UserError(
            "cannot make a DataLoader from a tokenmill loader",
            why="its items are whole batches in a fixed order; a DataLoader would join or shuffle "
            "them",
            hint="call loader.dataloader(); in a Hugging Face Trainer, return that "
            "from get_train_dataloader",
        )

    def dataloader(
        self,
        num_workers: int = 0,
        *,
        stateful: bool = False,
        **options: Unpack[DataLoaderOptions],
    ) -> DataLoader[Batch]:
        """A DataLoader whose items are our batches, in their order.

        Args:
            num_workers: processes that make batches; the calling one makes them if it is 0.
            stateful: make a `StatefulDataLoader` of torchdata, which keeps its workers' states.
            options: of the DataLoader.

        Raises:
            UserError: an option is none of these: it could divide, join or reorder batches.
        """
        known = sorted(DataLoaderOptions.__annotations__)
        if unknown := sorted(set(options) - set(known)):
            raise UserError(
                f"unknown option of dataloader(): {', '.join(unknown)}",
                why=f"the options are {', '.join(known)}",
                hint="the loader itself decides the size and the order of batches",
            )
        kind: Any = DataLoader
        if stateful:
            kind = import_module("torchdata.stateful_dataloader").StatefulDataLoader
        made: DataLoader[Batch] = kind(
            _Batches(self), batch_size=None, num_workers=num_workers, **options
        )
        return made

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def world_size(self) -> int:
        """Ranks that share each global batch."""

    @abstractmethod
    def tensors(self) -> Iterator[Batch]:
        """Batches from the next one on; in a worker of a DataLoader, those that it has to make."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on with the next batch."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was taken."""


class _Batches(IterableDataset[Batch]):
    """The batches of a source, for its DataLoader."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Batch]:
        self._refuse_to_be_dispatched()
        return self._source.tensors()

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned: what asks for the batches is only known here."""
        self._refuse_to_be_dispatched()
        return self.__dict__

    def state_dict(self) -> dict[str, Any]:
        return self._source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._source.load_state_dict(state)

    def _refuse_to_be_dispatched(self) -> None:
        """Raise a UserError if Accelerate is dividing what the first rank gives among all ranks."""
        state = sys.modules.get("accelerate.state")
        dispatching = sys.modules.get("accelerate.data_loader")
        if self._source.world_size == 1 or state is None or dispatching is None:
            return
        active = state.GradientState().active_dataloader
        is_dispatcher = isinstance(active, dispatching.DataLoaderDispatcher)
        if is_dispatcher and getattr(active, "dataset", None) is self:
            raise UserError(
                "Accelerate would divide the batches of one rank among all",
                why="the loader was made for its rank, and a prepared DataLoader is divided again: "
                "rows of the other ranks would be lost",
                hint="use the DataLoader without accelerator.prepare",
            )


class Passes:
    """Whether workers have begun a pass; another one would give the same batches again.

    The mark stands in memory that forked workers share; spawned ones are sent it.
    """

    def __init__(self, begun: int = 0) -> None:
        self._mark = mmap.mmap(-1, 1)
        self._mark[0] = begun

    @property
    def has_begun(self) -> bool:
        """Whether workers have begun."""
        return bool(self._mark[0])

    def begin(self) -> None:
        """Mark, in a worker, that a pass has begun.

        Raises:
            UserError: one has begun before.
        """
        self.refuse_another()
        self._mark[0] = 1

    def refuse_another(self) -> None:
        """Raise a UserError where a pass has begun."""
        if self.has_begun:
            raise UserError(
                "this loader has already given out its batches",
                why="another pass would repeat the same batches in the same order",
                hint="ask for more epochs, load a state to begin elsewhere, or set restart=True "
                "to repeat the same pass",
            )

    def forget(self) -> None:
        """Passes begin elsewhere from now on."""
        self._mark[0] = 0

    def __reduce__(self) -> tuple[type[Passes], tuple[int]]:
        found = self._mark[0]
        if get_spawning_popen() is not None:  # a worker, which shares no memory with this process
            self._mark[0] = 1
        return type(self), (found,)

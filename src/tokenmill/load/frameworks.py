"""DataLoaders for complete batches, and protection against code that would split or join them."""

from __future__ import annotations

import mmap
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from multiprocessing.context import get_spawning_popen
from typing import Any, NoReturn, TypedDict, Unpack

from torch.utils.data import DataLoader, IterableDataset

from tokenmill.core.errors import UserError
from tokenmill.load.columns import Batch


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
        self._source = source

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

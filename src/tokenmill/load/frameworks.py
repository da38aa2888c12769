"""What frameworks would do to batches that are whole already, refused before it goes wrong."""

from __future__ import annotations

import mmap
import sys
from multiprocessing.context import get_spawning_popen
from types import FrameType

from tokenmill.errors import UserError


def refuse_to_be_divided_again(loader: object, world_size: int, caller: FrameType) -> None:
    """Refuse to be iterated by what would join batches into one, or divide them among ranks.

    `caller` is the frame that asks for an iterator. A DataLoader with a batch size of its own
    stacks our batches into a batch of batches, which some models flatten and train on. Accelerate
    divides what the first rank gives among all ranks, and the other ranks' rows are never used.

    Raises:
        UserError: one of both would happen.
    """
    if caller.f_locals.get("auto_collation") is True:
        raise UserError(
            "a DataLoader would put several batches into one",
            why="its batch_size is not None, and each item of a tokenmill loader is a whole batch",
            hint="DataLoader(loader, batch_size=None); in a Hugging Face Trainer, override "
            "get_train_dataloader",
        )
    if world_size > 1 and _is_dispatched(loader):
        raise UserError(
            "Accelerate would divide the batches of one rank among all",
            why="the loader was made for its rank, and a prepared DataLoader is divided again",
            hint="use the loader without accelerator.prepare",
        )


def _is_dispatched(loader: object) -> bool:
    """Whether a DataLoader that Accelerate dispatches from its first process is at work."""
    state = sys.modules.get("accelerate.state")
    dispatching = sys.modules.get("accelerate.data_loader")
    if state is None or dispatching is None:
        return False
    active = state.GradientState().active_dataloader
    is_dispatcher = isinstance(active, dispatching.DataLoaderDispatcher)
    return is_dispatcher and getattr(active, "dataset", None) is loader


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

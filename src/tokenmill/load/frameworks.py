"""What frameworks would do to batches that are whole already, refused before it goes wrong."""

from __future__ import annotations

import sys
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

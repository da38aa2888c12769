"""The batches of a text stream, as PyTorch tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack

import torch.distributed
from torch.utils.data import DataLoader, get_worker_info

from tokenmill.core.errors import UserError
from tokenmill.load.columns import Batch, BatchContent, BatchOptions, columns_of
from tokenmill.load.loader import DataLoaderOptions, Passes, TensorSource, as_tensors
from tokenmill.load.rows.reader import Rows
from tokenmill.load.stats import CountedBatch, Meter, Timed
from tokenmill.load.text.sharing import Exchange
from tokenmill.load.text.stream import TextStream

if TYPE_CHECKING:
    Group = torch.distributed.ProcessGroup


def exchange_in(group: Group, rank: int, world_size: int) -> Exchange:
    """Return a function that sends a value to all ranks of a group, and returns those of all.

    Raises:
        UserError: the group does not consist of these ranks.
    """
    found = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    if found != (rank, world_size):
        why = f"this process is rank {found[0]} of {found[1]} in the group; got rank={rank}, "
        raise UserError(
            "the group does not have the ranks of the loader",
            why=f"{why}world_size={world_size}",
            hint="pass the group of data parallelism",
        )

    def exchange(value: Any) -> list[Any]:
        values: list[Any] = [None] * world_size
        torch.distributed.all_gather_object(values, value, group=group)
        return values

    return exchange


class TextLoader(TensorSource):
    """The batches of one rank of a text stream.

    Its DataLoader can have at most one worker, because each worker would encode the whole stream.

    Raises:
        UserError: an option is invalid or needs a plan, such as `positions="document"` and
            `masked_lm`.
    """

    def __init__(self, stream: TextStream, options: BatchOptions) -> None:
        problem = options.problems()
        if (
            options.positions == "document"
            or options.masked_lm is not None
            or options.fill_in_middle is not None
            or "task_ids" in options.columns
        ):
            problem = (
                'a text stream does not support positions="document", task_ids, masked_lm or '
                "fill_in_middle"
            )
        if problem:
            raise UserError("invalid batch option", why=problem)
        self.stream, self.options = stream, options
        self.meter = Meter()
        self._passes = Passes()
        self._has_ended = False

    def dataloader(
        self,
        num_workers: int = 0,
        *,
        stateful: bool = False,
        **options: Unpack[DataLoaderOptions],
    ) -> DataLoader[Batch]:
        """Return a DataLoader: see `TensorSource.dataloader`.

        Raises:
            UserError: an option is not allowed, or ranks share the encoding and there is a worker.
        """
        if num_workers and self.stream.exchange is not None:
            why = "a worker of a DataLoader is not in the group"
            hint = "set num_workers to 0, or leave out group"
            raise UserError("cannot share the encoding from a worker", why=why, hint=hint)
        return super().dataloader(num_workers, stateful=stateful, **options)

    def __len__(self) -> int:
        hint = "for a DataLoader, call loader.dataloader()"
        raise TypeError(f"the number of batches of a text stream is unknown; {hint}")

    @property
    def world_size(self) -> int:
        """Ranks that share each global batch."""
        return self.stream.world_size

    def tensors(self) -> Iterator[Batch]:
        """Yield batches from the next one on.

        Raises:
            UserError: all batches have been returned already, or there are several workers.
        """
        if get_worker_info() is None:
            return Timed(self._tensors(), self.meter)
        self.meter.take_counts()  # a forked worker has those of the process that trains
        return (CountedBatch(each, self.meter.take_counts()) for each in self._tensors())

    def _tensors(self) -> Iterator[Batch]:
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1:
            why = "each worker would encode the whole stream"
            hint = "set num_workers to 0 or 1"
            raise UserError("a text stream supports one worker", why=why, hint=hint)
        if worker is not None:
            self._passes.begin()
        elif self._has_ended:
            hint = "ask for more epochs"
            raise UserError(
                "no batches left: the whole stream has been returned already", hint=hint
            )
        else:
            self._passes.refuse_another()
        for rows in self.stream:
            self.meter.add_rows(rows.segmentation)
            yield as_tensors(columns_of(self._content(rows)))
        self._has_ended = True

    def stats(self) -> dict[str, float]:
        """Return counts and waits: see `Batches.stats`. `step` and `epoch` are not known."""
        return self.meter.figures()

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch: see `TextStream.state_dict`.

        Raises:
            UserError: a worker of a DataLoader reads the stream, so the state is not known here.
        """
        if get_worker_info() is None and self._passes.has_begun:
            why = "a worker of a DataLoader reads it"
            hint = "use dataloader(1, stateful=True), which keeps the worker's state, or no worker"
            raise UserError("cannot tell how far the stream has been read", why=why, hint=hint)
        return self.stream.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state: see `TextStream.load_state_dict`."""
        self.stream.load_state_dict(state)
        self._passes.forget()
        self._has_ended = False

    def _content(self, rows: Rows) -> BatchContent:
        most = self.stream.most_segments
        return BatchContent(
            rows=rows,
            most_segments=len(rows.ids) * most if most else len(rows.segmentation),
            options=self.options,
        )

"""Batches of a text stream as PyTorch tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import get_worker_info

from tokenmill.errors import UserError
from tokenmill.load.columns import Batch, BatchContent, BatchOptions, columns_of
from tokenmill.load.frameworks import Passes, TensorSource
from tokenmill.load.loader import as_tensors
from tokenmill.load.rows.reader import Rows
from tokenmill.load.text.stream import TextStream


class TextLoader(TensorSource):
    """The batches of one rank of a text stream.

    Its DataLoader may have one worker: each would encode the whole stream.

    Raises:
        UserError: an option is invalid, or needs a plan: positions that go on in a document, and
            labels of a masked language model.
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
                "a text stream has no positions in documents, no task_ids, no masked_lm and no "
                "fill_in_middle"
            )
        if problem:
            raise UserError("invalid batch option", why=problem)
        self.stream, self.options = stream, options
        self._passes = Passes()
        self._has_ended = False

    def __len__(self) -> int:
        hint = "its DataLoader is made by loader.dataloader()"
        raise TypeError(f"a text stream does not know how many batches it has; {hint}")

    @property
    def world_size(self) -> int:
        """Ranks that share each global batch."""
        return self.stream.world_size

    def tensors(self) -> Iterator[Batch]:
        """Batches from where the stream stands.

        Raises:
            UserError: all have been given out, or there are several workers.
        """
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1:
            hint = "num_workers=1, or 0"
            raise UserError("each worker would encode the whole stream", hint=hint)
        if worker is not None:
            self._passes.begin()
        elif self._has_ended:
            hint = "ask for more epochs"
            raise UserError("all batches of the stream have been given out", hint=hint)
        else:
            self._passes.refuse_another()
        for rows in self.stream:
            yield as_tensors(columns_of(self._content(rows)))
        self._has_ended = True

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands: see `TextStream.state_dict`.

        Raises:
            UserError: a worker of a DataLoader reads it, so that nobody knows here.
        """
        if get_worker_info() is None and self._passes.has_begun:
            hint = "use a StatefulDataLoader, which keeps the state of its worker, or no worker"
            raise UserError("cannot tell how far the stream has come", hint=hint)
        return self.stream.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was taken: see `TextStream.load_state_dict`."""
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

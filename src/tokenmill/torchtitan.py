"""Batches for torchtitan: a dataloader for its configuration. Checked with torchtitan 0.3.0.

    Trainer.Config(dataloader=TokenmillDataLoader.Config(dataset_path="corpus/"), ...)

torchtitan asks for a batch of `local_batch_size` rows for each backward pass. A step of tokenmill
is the whole step of the optimizer: `global_batch_size` rows over all ranks, of which each rank
gives its share in parts of `local_batch_size`. So the rows of a step are the same for any number of
ranks, and a run resumes on another one. A dataloader of torchtitan's own refuses that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader

from tokenmill.api.datasets import open as open_dataset
from tokenmill.core.errors import UserError
from tokenmill.load.batches import Batches
from tokenmill.load.columns import Batch, micro_batches
from tokenmill.load.loader import Loader

STATE = "tokenmill"
"""Key of the state: one text, because a checkpoint restores only keys that a new loader has."""
AS_LOCAL = -1
"""A global batch size that follows from `local_batch_size` and the ranks, as in torchtitan."""

Item = tuple[dict[str, torch.Tensor], torch.Tensor]


class TokenmillDataLoader(BaseDataLoader):  # type: ignore[misc]  # torchtitan need not be installed
    """The batches of a plan: `({"input": ids, "positions": positions}, labels)`.

    All are int64, shape (local_batch_size, seq_len). A label is the next token of its document, and
    -100 if there is none. Positions start at 0 in each document, so torchtitan's masks keep
    documents apart. Override `open_batches` to train on a mixture or with other options.

    The state is the same on all ranks. torchtitan calls the constructor, `state_dict` and
    `load_state_dict`.

    Raises:
        UserError: the dataset or the plan does not exist, rows do not have `seq_len` tokens, or the
            ranks cannot share the global batch.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):  # type: ignore[misc]
        """What to train on. `dataset_path` is the folder of a dataset or its name in a bucket."""

        plan: str | None = None
        """Name of the plan; None if the dataset has only one."""
        cache: str | None = None
        """Folder for what is downloaded, if the dataset is in a bucket."""
        global_batch_size: int = AS_LOCAL
        """`training.global_batch_size`; set both to resume on another number of ranks."""
        seed: int = 0
        infinite: bool = True
        """Whether to start another epoch after the last row. torchtitan sets it for validation."""
        prefetch: int = 2
        """Steps that a thread prepares."""

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int,
        local_batch_size: int,
        **_: Any,
    ) -> None:
        rows = local_batch_size * dp_world_size
        size = rows if config.global_batch_size == AS_LOCAL else config.global_batch_size
        if size < 1 or size % rows:
            raise UserError(
                "cannot divide the global batch among the ranks",
                why=f"it has {size} rows, and {dp_world_size} ranks take {local_batch_size} each",
                hint="set global_batch_size of the dataloader to training.global_batch_size",
            )
        ranks = {"rank": dp_rank, "world_size": dp_world_size}
        batches = self.open_batches(config, global_batch_size=size, **ranks)
        if batches.row_lengths != [seq_len]:
            raise UserError(
                "the rows of the plan are not those that torchtitan trains on",
                why=f"they have {' or '.join(map(str, batches.row_lengths))} tokens, and "
                f"training.seq_len is {seq_len}",
                hint=f"set training.seq_len, or: tokenmill pack DIR --sequence-length {seq_len}",
            )
        self._loader = Loader(batches, config.prefetch)
        self._num_parts = size // rows
        self._parts: list[Batch] = []
        """What is left of the last step."""

    def open_batches(self, config: Config, **options: Any) -> Batches:
        """Return the batches to train on.

        Args:
            config: the configuration of this dataloader.
            options: `global_batch_size`, `rank` and `world_size`, to pass on.
        """
        if config.dataset or not config.dataset_path:
            why = f"got dataset={config.dataset!r}, dataset_path={config.dataset_path!r}"
            hint = "set dataset_path to the folder of the dataset, and leave dataset empty"
            raise UserError("torchtitan's dataloader needs a dataset", why=why, hint=hint)
        return open_dataset(config.dataset_path, cache=config.cache).batches(
            config.plan,
            seed=config.seed,
            epochs=None if config.infinite else 1,
            labels="next",
            columns=("input_ids", "labels", "position_ids"),
            **options,
        )

    def __iter__(self) -> Iterator[Item]:
        """Yield the next part of this rank's rows, after those that were taken already.

        Raises:
            UserError: all have been taken.
        """
        steps = None
        while True:
            if not self._parts:
                steps = steps or iter(self._loader)
                batch = next(steps, None)
                if batch is None:
                    return
                self._parts = micro_batches(batch, self._num_parts)
            part = self._parts.pop(0)
            yield {"input": part["input_ids"], "positions": part["position_ids"]}, part["labels"]

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume at the next step, on any number of ranks.

        Raises:
            UserError: a part of the last step has not been taken yet.
        """
        if self._parts:
            raise UserError(
                "cannot save a state within a step",
                why=f"{len(self._parts)} of {self._num_parts} parts of the step are left",
                hint="set global_batch_size of the dataloader to training.global_batch_size",
            )
        return {STATE: json.dumps(self._loader.state_dict())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a state; an empty one changes nothing.

        Raises:
            UserError: it belongs to another dataloader, other data or another global batch.
        """
        if not state_dict:
            return
        if STATE not in state_dict:
            why = f"it has the keys {', '.join(map(str, state_dict))}"
            hint = "exclude the dataloader from loading: checkpoint.exclude_from_loading"
            raise UserError("the state belongs to another dataloader", why=why, hint=hint)
        self._loader.load_state_dict(json.loads(state_dict[STATE]))
        self._parts = []

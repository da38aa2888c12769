"""What a text stream is made with."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tokenmill.errors import UserError
from tokenmill.pack.options import MAX_SEQUENCE_LENGTH
from tokenmill.row_format import Labels

Positive = Annotated[int, Meta(ge=1)]


class TextStreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides the rows. A resume needs the same options, but for `max_bad`."""

    sequence_length: Annotated[int, Meta(ge=1, le=MAX_SEQUENCE_LENGTH)]
    global_batch_size: Positive
    """Rows of a step, over all ranks."""
    dropout: float | None = None
    """BPE: the probability with which a merge is left out."""
    alpha: float | None = None
    """Unigram: the exponent of the probability of a segmentation."""
    seed: int = 0
    epochs: Positive = 1
    labels: Labels = "aligned"
    open_sequences: Positive = 64
    """Sequences that are kept open; more of them pack better and make the state larger."""
    max_segments: Positive | None = None
    """Most documents of a sequence: gives cu_seqlens a fixed size."""
    format: str = "auto"
    text_field: str = "text"
    text_template: str | None = None
    separator: str | None = None
    eos: str | None = None
    pad: str | None = None
    max_bad: Annotated[float, Meta(ge=0, lt=1)] = 0.0001
    """Share of records that may be unreadable; judged at the end of each epoch, as in a build."""

    @property
    def identity(self) -> dict[str, Any]:
        """What a resume must agree with."""
        values: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, max_bad=0.0))
        if self.text_template is None:
            del values["text_template"]  # it is younger than the first states
        return values


def checked_options(options: TextStreamOptions) -> TextStreamOptions:
    """The options, with every value checked."""
    try:
        return msgspec.convert(msgspec.to_builtins(options), TextStreamOptions)
    except msgspec.ValidationError as error:
        raise UserError("invalid text stream option", why=str(error)) from error


def share_of_batch(num_rows: int, rank: int, world_size: int) -> slice:
    """The rows of a batch that a rank is given."""
    if not 0 <= rank < world_size or num_rows % world_size:
        why = f"rank {rank} of {world_size}, and batches of {num_rows} rows"
        hint = "ranks count from 0, and their number must divide the batch size"
        raise UserError("batches cannot be dealt to the ranks", why=why, hint=hint)
    size = num_rows // world_size
    return slice(rank * size, (rank + 1) * size)

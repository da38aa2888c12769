"""The options of a text stream."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.pack.options import MAX_SEQUENCE_LENGTH
from tokenmill.store.row_format import Labels

Positive = Annotated[int, Meta(ge=1)]


class TextStreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a text stream. To resume, use the same options; only `max_bad` may change."""

    sequence_length: Annotated[int, Meta(ge=1, le=MAX_SEQUENCE_LENGTH)]
    global_batch_size: Positive
    """Rows in a step, over all ranks."""
    dropout: float | None = None
    """For BPE: probability of skipping a merge."""
    alpha: float | None = None
    """For Unigram: exponent of the probability of a segmentation."""
    seed: int = 0
    epochs: Positive = 1
    labels: Labels = "aligned"
    open_sequences: Positive = 64
    """Number of open sequences. More of them pack better, but make the state larger."""
    max_segments: Positive | None = None
    """Maximum number of documents in a sequence. It gives cu_seqlens a fixed size."""
    format: str = "auto"
    text_field: str = "text"
    text_template: str | None = None
    separator: str | None = None
    eos: str | None = None
    pad: str | None = None
    max_bad: Annotated[float, Meta(ge=0, lt=1)] = 0.0001
    """Share of records that may be unreadable, checked at the end of each epoch."""

    @property
    def identity(self) -> dict[str, Any]:
        """The options that must not change when resuming."""
        values: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, max_bad=0.0))
        return values


def checked_options(options: TextStreamOptions) -> TextStreamOptions:
    """Return the options after checking every value."""
    try:
        return msgspec.convert(msgspec.to_builtins(options), TextStreamOptions)
    except msgspec.ValidationError as error:
        raise UserError("invalid text stream option", why=str(error)) from None


def share_of_batch(num_rows: int, rank: int, world_size: int) -> slice:
    """Return the rows of a batch for a rank."""
    if not 0 <= rank < world_size or num_rows % world_size:
        why = f"got rank={rank}, world_size={world_size} and {num_rows} rows"
        hint = "rank must be less than world_size, and world_size must divide global_batch_size"
        raise UserError("cannot divide the global batch among the ranks", why=why, hint=hint)
    size = num_rows // world_size
    return slice(rank * size, (rank + 1) * size)

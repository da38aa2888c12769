"""What parity-aware merges are asked for, and what they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tokenmill.errors import UserError
from tokenmill.records import Int32Array, Int64Array
from tokenmill.vocabulary.bpe.merges import Merges

MAX_NUMBER = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityOptions:
    """How many merges, and for whom; as in `tokenizers.trainers.ParityBpeTrainer`."""

    num_merges: int
    variant: Literal["base", "window"] = "base"
    """`window`: a language that had too many of the last turns is passed over."""
    global_merges: int = 0
    """So many merges come first that are the most frequent of all languages together."""
    window: int = 100
    """Turns that `window` looks back on."""
    alpha: float = 2.0
    """`window` passes over who had more than alpha / languages of these turns."""
    min_frequency: int = 0
    """A pair that occurs less often in its language is not merged."""
    max_token_length: int | None = None
    """As in `bpe.merges.MergeOptions`."""

    def __post_init__(self) -> None:
        numbers = (self.num_merges, self.global_merges, self.min_frequency)
        if min(numbers) < 0 or max(numbers) >= MAX_NUMBER or (self.max_token_length or 0) < 0:
            raise UserError("merges, frequency and length must be from 0 to 2^31 - 1")
        if self.variant not in ("base", "window"):
            raise UserError(f"variant must be base or window, got {self.variant!r}")
        if self.window < 1 or not 0 < self.alpha < math.inf:
            raise UserError(
                "the window must be 1 or more, and alpha above 0",
                why=f"they are {self.window} and {self.alpha}",
            )


@dataclass(frozen=True, slots=True)
class ParityMerges:
    """Merges, and whom they were for."""

    merges: Merges
    languages: tuple[str, ...]
    turns: Int32Array
    """Shape (num_merges,): the language that each merge was chosen for, by its place in
    `languages`; -2 where all were asked together."""
    tokens: Int64Array
    """Shape (num_languages, 2): tokens of the text that decides, before and after all merges."""
    exhausted: tuple[str, ...]
    """Languages that had a turn, and no pair that is frequent enough."""

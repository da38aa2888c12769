"""The options and the result of learning parity-aware merges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.vocabulary.bpe.merges import Merges

MAX_NUMBER = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityOptions:
    """The options of `tokenizers.trainers.ParityBpeTrainer`."""

    num_merges: int
    variant: Literal["base", "window"] = "base"
    """With `window`, languages that had too many recent turns are skipped."""
    global_merges: int = 0
    """The number of merges at the start that are chosen for all languages together."""
    window: int = 100
    """The number of recent turns that `window` looks at."""
    alpha: float = 2.0
    """`window` skips a language that had more than alpha / languages of the recent turns."""
    min_frequency: int = 0
    """Pairs that occur less often in their language are not merged."""
    max_token_length: int | None = None
    """See `bpe.merges.MergeOptions`."""

    def __post_init__(self) -> None:
        numbers = (self.num_merges, self.global_merges, self.min_frequency)
        if min(numbers) < 0 or max(numbers) >= MAX_NUMBER or (self.max_token_length or 0) < 0:
            raise UserError("merges, frequency and token length must be from 0 to 2^31 - 1")
        if self.variant not in ("base", "window"):
            raise UserError(f"variant must be base or window, got {self.variant!r}")
        if self.window < 1 or not 0 < self.alpha < math.inf:
            raise UserError(
                "the window must be at least 1, and alpha greater than 0",
                why=f"got {self.window} and {self.alpha}",
            )


@dataclass(frozen=True, slots=True)
class ParityMerges:
    """Merges, and the language that each was chosen for."""

    merges: Merges
    languages: tuple[str, ...]
    turns: Int32Array
    """Shape (num_merges,): the index of the language in `languages` that each merge was chosen for;
    -2 for all languages together."""
    tokens: Int64Array
    """Shape (num_languages, 2): tokens of the text that decides, before and after all merges."""
    exhausted: tuple[str, ...]
    """Languages that had a turn but no pair frequent enough."""

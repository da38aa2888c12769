"""Learn merges that compress all languages equally well: parity-aware byte-pair encoding.

Each merge is the most frequent pair of the language that is currently compressed worst, and is
applied to all languages. The merges equal those of `tokenizers.trainers.ParityBpeTrainer`; of
equally frequent pairs, the one with the larger strings comes first. That trainer takes texts, not
counts of words, and needs 130 times as long for 22 languages.

N. Foroutan et al.: Parity-Aware Byte-Pair Encoding: Improving Cross-lingual Fairness in
Tokenization, arXiv 2508.04796.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance, Int64Array
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.learning import Merging
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.symbols import Symbols


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityOptions:
    """How the language of the next merge is chosen, as in `tokenizers.trainers.ParityBpeTrainer`.

    Give either `dev` or `ratios`.
    """

    dev: Mapping[str, WordCounts] | None = None
    """Words of the same content in every language: the one with the most tokens is worst. May be
    the training words if these have the same content."""
    ratios: Mapping[str, float] | None = None
    """The wanted compression of each language: the one with the lowest relative to it is worst."""
    variant: Literal["base", "window"] = "base"
    """With `window`, languages that had too many recent turns are skipped."""
    window: int = 100
    """The number of recent turns that `window` looks at."""
    alpha: float = 2.0
    """`window` skips a language that had more than alpha / languages of the recent turns."""


@dataclass(frozen=True, slots=True)
class ParityMerges:
    """Merges, and what each language gained."""

    merges: Merges
    turns: list[str]
    """The language that each merge was chosen for."""
    compression: dict[str, float]
    """Of the text that decides: its tokens before the first merge, by those after the last."""
    exhausted: list[str]
    """Languages that had a turn but no pair frequent enough."""


def learn_parity_merges(
    groups: Mapping[str, WordCounts],
    symbols: Symbols,
    options: MergeOptions,
    parity: ParityOptions,
    advance: Advance | None = None,
) -> ParityMerges:
    """Learn merges from the words of several languages; their order breaks ties.

    Raises:
        UserError: not exactly one of `dev` and `ratios` is given, or they have other languages; a
            ratio is not positive; the counts are too large.
    """
    _check(groups, parity)
    languages = list(groups)
    texts = [symbols.segment(groups[name]) for name in languages]
    dev = parity.dev
    if dev is not None and any(dev[name] is not groups[name] for name in languages):
        texts += [symbols.segment(dev[name]) for name in languages]
    deciding = slice(len(texts) - len(languages), len(texts))
    lengths = np.array([text.num_tokens - text.num_fixed for text in texts[deciding]], np.int64)
    ratios = np.array([parity.ratios[name] for name in languages]) if parity.ratios else None
    turns = Turns(lengths, ratios, parity)
    merging = Merging(texts, symbols, options, num_heaps=len(languages))
    merging.order_by_string()
    chosen: list[str] = []
    while merging.room and not turns.exhausted.all():
        if not merging.is_indexed:
            merging.index_all()
        language = turns.following()
        if (pair := merging.best(language)) is None:
            turns.exhausted[language] = True
            continue
        merging.report(advance)
        turns.lengths -= merging.merge(*pair)[deciding]
        chosen.append(languages[language])
    merging.report(advance, last=True)
    gained = turns.initial / np.maximum(turns.lengths, 1)
    exhausted = [name for name, over in zip(languages, turns.exhausted, strict=True) if over]
    compression = dict(zip(languages, gained.tolist(), strict=True))
    return ParityMerges(merging.merges(), chosen, compression, exhausted)


def _check(groups: Mapping[str, WordCounts], parity: ParityOptions) -> None:
    if (parity.dev is None) == (parity.ratios is None):
        raise UserError(
            "parity-aware merges need either development texts or ratios",
            why="they decide which language is compressed worst",
        )
    given = parity.dev if parity.dev is not None else parity.ratios
    if not groups or given is None or set(given) != set(groups):
        raise UserError(
            "development texts or ratios must have the same languages as the training texts",
            why=f"got {', '.join(given or ())}; expected {', '.join(groups) or 'none'}",
        )
    for name, ratio in (parity.ratios or {}).items():
        if not 0 < ratio < math.inf:
            raise UserError(f"the ratio of {name!r} must be greater than 0, got {ratio}")


class Turns:
    """Chooses the language of the next merge; arrays have shape (num_languages,)."""

    def __init__(
        self, lengths: Int64Array, ratios: npt.NDArray[np.float64] | None, options: ParityOptions
    ) -> None:
        self.initial = lengths
        """Tokens of the deciding texts before the first merge."""
        self.lengths = lengths.copy()
        """The same now."""
        # An empty text has no pairs, and its compression would be a division by zero.
        self.exhausted = (lengths == 0) & (ratios is not None)
        """Languages without a pair that is frequent enough."""
        self._ratios = ratios
        self._window = options.window
        self.recent = deque[int](maxlen=options.window if options.variant == "window" else 0)
        """The languages of recent turns."""
        self._num_recent = np.zeros(len(lengths), np.int64)
        self._most = options.alpha / len(lengths)

    def following(self) -> int:
        """Return the language of the next merge."""
        if not self.recent.maxlen:
            return self._neediest(self.exhausted)
        chosen = self._neediest_in_window()
        if len(self.recent) == self._window:
            self._num_recent[self.recent[0]] -= 1
        self.recent.append(chosen)
        self._num_recent[chosen] += 1
        return chosen

    def _neediest(self, passed: npt.NDArray[np.bool_]) -> int:
        """Return the language compressed worst, of those not passed over."""
        if self._ratios is None:
            return int(np.argmax(np.where(passed, -1, self.lengths)))
        compression = self.initial / np.maximum(self.lengths, 1) / self._ratios
        return int(np.argmin(np.where(passed, math.inf, compression)))

    def _neediest_in_window(self) -> int:
        """Choose like the reference, also if all languages had too many recent turns.

        If all had too many, the language compressed best is chosen. If some are exhausted and all
        others had too many, the reference wastes turns on the first language until its share is too
        large too; after that, or if the first language is not exhausted, the reference never
        returns. Here the language compressed worst is then chosen.
        """
        is_over = self._num_recent / self._window > self._most
        passed = self.exhausted.copy()
        chosen = worst_off = self._neediest(passed)
        while is_over[chosen]:
            passed[chosen] = True
            if passed.all():
                break
            chosen = self._neediest(passed)
        else:
            return chosen
        if not self.exhausted.any():
            return chosen
        if self.exhausted[0] and (not is_over[0] or self.exhausted.sum() == 1):
            return 0
        return worst_off

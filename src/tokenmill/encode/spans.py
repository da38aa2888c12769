"""Convert character spans to token ranges, with the offsets of the reference tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.core.records import CharSpans, Int64Array, TokenBatch
from tokenmill.encode.boundaries import ranges_outside, token_ranges
from tokenmill.encode.engine import REPORT, Reference


class SpanEncoder:
    """Converts character spans to token ranges.

    The reference is loaded with the first span, because most builds have no spans.
    """

    def __init__(self, load_reference: Callable[[], Reference]) -> None:
        self._load_reference = load_reference
        self._reference: Reference | None = None

    def ranges(
        self, texts: Sequence[str], spans: Sequence[CharSpans], tokens: TokenBatch, shift: int
    ) -> list[CharSpans]:
        """Return the token ranges of each text's spans; `shift` tokens precede each text.

        Raises:
            EngineError: the ids of the reference differ from those in `tokens`.
        """
        result: list[CharSpans] = []
        for index, (text, places) in enumerate(zip(texts, spans, strict=True)):
            if not places:
                result.append([])
                continue
            starts, stops = self._offsets(text, tokens, index)
            result.append(token_ranges(places, starts, stops, shift))
        return result

    def ranges_of_turns(
        self, texts: Sequence[str], spans: Sequence[CharSpans], tokens: TokenBatch
    ) -> list[CharSpans]:
        """Return the token ranges inside each text's spans, without tokens that cross their edges.

        Raises:
            EngineError: the ids of the reference differ from those in `tokens`.
        """
        return [
            ranges_outside(places, *self._offsets(text, tokens, index), len(text)) if places else []
            for index, (text, places) in enumerate(zip(texts, spans, strict=True))
        ]

    def _offsets(self, text: str, tokens: TokenBatch, index: int) -> tuple[Int64Array, Int64Array]:
        """Return the character range of each token of a text: starts and stops."""
        self._reference = self._reference or self._load_reference()
        ids, starts, stops = self._reference.encode_with_offsets(text)
        found = tokens.ids[tokens.offsets[index] : tokens.offsets[index + 1]]
        if not np.array_equal(ids, found):
            where = f"text {text[:80]!r}"
            what = "the engine gives ids that differ from the reference"
            raise EngineError(what, where=where, hint=REPORT)
        return starts, stops

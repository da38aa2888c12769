"""Character spans to token ranges, through the reference's own offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tokenmill.boundaries import ranges_outside, token_ranges
from tokenmill.encode.engine import REPORT, Reference
from tokenmill.errors import EngineError
from tokenmill.records import CharSpans, Int64Array, TokenBatch


class SpanEncoder:
    """Loads the reference when the first span comes, because most builds have none."""

    def __init__(self, load_reference: Callable[[], Reference]) -> None:
        self._load_reference = load_reference
        self._reference: Reference | None = None

    def ranges(
        self, texts: Sequence[str], spans: Sequence[CharSpans], tokens: TokenBatch, shift: int
    ) -> list[CharSpans]:
        """Token ranges of each text's spans, `shift` tokens preceding each text.

        Raises:
            EngineError: the reference gives a text other ids than `tokens` holds.
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
        """Token ranges inside each text's spans; a token that reaches out of them is left out.

        Raises:
            EngineError: the reference gives a text other ids than `tokens` holds.
        """
        return [
            ranges_outside(places, *self._offsets(text, tokens, index), len(text)) if places else []
            for index, (text, places) in enumerate(zip(texts, spans, strict=True))
        ]

    def _offsets(self, text: str, tokens: TokenBatch, index: int) -> tuple[Int64Array, Int64Array]:
        """The character range of each token of a text."""
        self._reference = self._reference or self._load_reference()
        ids, starts, stops = self._reference.encode_with_offsets(text)
        found = tokens.ids[tokens.offsets[index] : tokens.offsets[index + 1]]
        if not np.array_equal(ids, found):
            where = f"text {text[:80]!r}"
            raise EngineError("the engine differs from the reference", where=where, hint=REPORT)
        return starts, stops

"""Convert character spans to token ranges, with the offsets of the reference tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.core.records import CharSpans, Int64Array, TokenBatch
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


def token_ranges(spans: CharSpans, starts: Int64Array, stops: Int64Array, shift: int) -> CharSpans:
    """Return the ranges of tokens that share a character with a character span.

    `starts` and `stops` are the character range of each token; `shift` tokens precede them. The
    ranges are sorted, and adjacent ranges are merged.
    """
    covered = np.zeros(len(starts) + 1, dtype=np.int8)
    for start, stop in spans:
        if start < stop:  # an empty span inside a token would pass the comparisons below
            covered[:-1] |= (starts < stop) & (stops > start) & (starts < stops)
    edges = np.flatnonzero(np.diff(covered, prepend=0)) + shift
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def ranges_outside(
    spans: CharSpans, starts: Int64Array, stops: Int64Array, num_characters: int
) -> CharSpans:
    """Return the ranges of tokens that lie entirely inside character spans.

    For conversations: `spans` are excluded from the loss, and a token that reaches outside of them
    has loss. As in `return_assistant_tokens_mask` of transformers, a stretch with loss includes
    the tokens without characters between its first and its last token.
    """
    has_loss = np.zeros(len(starts) + 1, dtype=bool)
    edges = [0, *(place for span in sorted(spans) for place in span), num_characters]
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        inside = np.flatnonzero((starts < stop) & (stops > start) & (starts < stops))
        if start < stop and len(inside):
            has_loss[inside[0] : inside[-1] + 1] = True
    has_loss[-1] = True
    edges = np.flatnonzero(np.diff(~has_loss, prepend=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))

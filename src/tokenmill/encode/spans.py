"""Convert character spans to token ranges.

If the bytes of the tokens, one after another, are the text in UTF-8, they say where each token is.
Otherwise the reference encodes the text again and says it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.core.records import CharSpans, Int64Array, TokenBatch
from tokenmill.encode.engine import REPORT, Reference


class SpanEncoder:
    """Converts character spans to token ranges.

    What it needs is loaded with the first span, because most builds have no spans. `load_bytes`
    returns the bytes of tokens by id; {} if they are not known.
    """

    def __init__(
        self,
        load_reference: Callable[[], Reference],
        load_bytes: Callable[[], Mapping[int, bytes]] = dict,
    ) -> None:
        self._load_reference, self._load_bytes = load_reference, load_bytes

    @cached_property
    def _reference(self) -> Reference:
        return self._load_reference()

    @cached_property
    def _bytes(self) -> list[bytes]:
        """The bytes of each token by id; some that no text has where they are unknown or empty."""
        known = self._load_bytes()
        return [known.get(i) or b"\xff" for i in range(max(known, default=-1) + 1)]

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
        found = tokens.ids[tokens.offsets[index] : tokens.offsets[index + 1]]
        if self._bytes:
            pieces = [self._bytes[i] for i in found.tolist()]
            if b"".join(pieces) == text.encode():
                return places_of(pieces, text)
        ids, starts, stops = self._reference.encode_with_offsets(text)
        if not np.array_equal(ids, found):
            where = f"text {text[:80]!r}"
            what = "the engine gives ids that differ from the reference"
            raise EngineError(what, where=where, hint=REPORT)
        return starts, stops


def places_of(pieces: Sequence[bytes], text: str) -> tuple[Int64Array, Int64Array]:
    """Return the character range of each piece of a text in UTF-8, none of which is empty.

    A piece that begins or ends inside a character has that whole character. Both arrays have shape
    (num_pieces,).
    """
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    stops = np.cumsum(lengths)
    starts = stops - lengths
    if text.isascii() or not len(stops):
        return starts, stops
    data = np.frombuffer(text.encode(), np.uint8)
    characters = np.cumsum((data & 0xC0) != 0x80) - 1  # continuation bytes begin none
    return characters[starts], characters[stops - 1] + 1


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

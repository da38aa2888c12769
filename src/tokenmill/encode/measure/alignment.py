"""Align tokens with the words of texts, to find words that are split into several tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array, TokenBatch
from tokenmill.encode.measure.language_words import EncodedTexts, WordSpans
from tokenmill.encode.token_bytes import TokenTable
from tokenmill.kernels.compiled import compiled, inner

UNKNOWN_WORDS = -1


def continued_words(
    texts: EncodedTexts, words: WordSpans, tokens: TokenBatch, table: TokenTable
) -> Int64Array:
    """The number of words in each text that span several tokens, shape (n,).

    A word is taken with its space, as the tokenizer sees it, and a token can hold several. It
    is UNKNOWN_WORDS where the bytes of the tokens are not those of the text, but for one space
    before it: a normalizer changed it, or there were unknown characters.
    """
    return _continued(
        texts.data,
        texts.edges,
        words.spans,
        words.edges,
        tokens.ids,
        tokens.offsets,
        table.data,
        table.offsets,
    )


def continued_by_offsets(
    words: npt.NDArray[np.int64], starts: Int64Array, stops: Int64Array
) -> int:
    """The number of words of one text that span several tokens, from token offsets.

    `words` has shape (n, 2), in the same unit as `starts` and `stops` of shape (num_tokens,).
    """
    first = np.searchsorted(stops, words[:, 0], side="right")
    after = np.searchsorted(starts, words[:, 1], side="left")
    return int(np.count_nonzero(after - first > 1))


def count_where(flags: npt.NDArray[np.bool_], tokens: TokenBatch) -> Int64Array:
    """The number of tokens in each text with a true flag for their id, shape (n,)."""
    hits = np.flatnonzero(flags[tokens.ids])
    owners = np.searchsorted(tokens.offsets, hits, side="right") - 1
    return np.bincount(owners, minlength=len(tokens.offsets) - 1)


@compiled
def _continued(
    data: npt.NDArray[np.uint8],
    edges: Int64Array,
    words: Int64Array,
    word_edges: Int64Array,
    ids: npt.NDArray[np.uint32],
    offsets: Int64Array,
    table: npt.NDArray[np.uint8],
    table_offsets: Int32Array,
) -> Int64Array:
    found = np.empty(len(edges) - 1, np.int64)
    ends = np.empty(1024, np.int64)
    for text in range(len(edges) - 1):
        own = ids[offsets[text] : offsets[text + 1]]
        while len(ends) < len(own):
            ends = np.empty(2 * len(ends), np.int64)
        start, stop = edges[text], edges[text + 1]
        # Ignore the space that some tokenizers put before a text that does not begin with one.
        if not (
            _find_ends(data, start, stop, own, table, table_offsets, ends, 0)
            or _find_ends(data, start, stop, own, table, table_offsets, ends, 1)
        ):
            found[text] = UNKNOWN_WORDS
            continue
        continued = token = 0
        for word in range(word_edges[text], word_edges[text + 1]):
            while ends[token] <= words[word, 0]:
                token += 1
            if ends[token] < words[word, 1]:
                continued += 1
                while ends[token] < words[word, 1]:
                    token += 1
        found[text] = continued
    return found


@inner
def _find_ends(
    data: npt.NDArray[np.uint8],
    at: int,
    stop: int,
    ids: npt.NDArray[np.uint32],
    table: npt.NDArray[np.uint8],
    table_offsets: Int32Array,
    ends: Int64Array,
    num_spaces: int,
) -> bool:
    """Set the end of each token in a text; false if the tokens do not spell the text.

    The first `num_spaces` bytes of the first token are passed over, if they are a space.
    """
    for token in range(len(ids)):
        byte, after = table_offsets[ids[token]], table_offsets[ids[token] + 1]
        if token == 0 and num_spaces:
            if after == byte or table[byte] != 0x20:
                return False
            byte += 1
        if at + after - byte > stop:
            return False
        while byte < after:
            if table[byte] != data[at]:
                return False
            byte, at = byte + 1, at + 1
        ends[token] = at
    return at == stop

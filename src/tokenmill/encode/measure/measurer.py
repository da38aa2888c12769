"""Turn batches of encoded documents into a tally: their lengths, and the words that tokens cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, TokenBatch, UInt32Array
from tokenmill.encode.measure.language_words import WordCutter
from tokenmill.encode.measure.tallies import COLUMNS, Tally
from tokenmill.encode.token_bytes import Token
from tokenmill.kernels.word_boundaries import (
    UNKNOWN_WORDS,
    EncodedTexts,
    TokenTable,
    WordSpans,
    continued,
)

OFFSETS_BYTES = 16 << 20
"""How much text is encoded again, with offsets, if tokens do not spell their texts."""


Offsets = Callable[[str], tuple[UInt32Array, Int64Array, Int64Array]]
"""Encodes texts like `Reference.encode_with_offsets`."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The properties of a tokenizer that measuring needs."""

    largest_id: int
    unk_id: int | None
    table: TokenTable | None
    """Bytes of each token. None if the tokenizer does not list its tokens."""
    num_around: int
    """Number of tokens that a build adds to a document: prefix and EOS."""
    encode_with_offsets: Offsets


class Measurer:
    """Adds documents to a tally; one for each process."""

    def __init__(
        self,
        measured: Measured,
        words: str,
        sequence_lengths: Sequence[int],
        offsets_share: float,
    ) -> None:
        """`offsets_share` of the documents that tokens do not spell are encoded with offsets.

        Raises:
            UserError: the rule for words is unknown, or its library is missing.
        """
        self._measured = measured
        self._cutter = WordCutter(words)
        self._offsets_limit = np.uint64(min(int(offsets_share * 2**64), 2**64 - 1))
        self._is_unknown = np.zeros(measured.largest_id + 1, np.bool_)
        if measured.unk_id is not None:
            self._is_unknown[measured.unk_id] = True
        self.tally = Tally.empty(measured.largest_id, sequence_lengths)

    def add(
        self,
        texts: Sequence[str],
        tokens: TokenBatch,
        groups: Sequence[str],
        hashes: npt.NDArray[np.uint64],
    ) -> None:
        """Add documents with their ids, the group and a hash of each.

        Raises:
            UserError: there are too many groups.
        """
        lengths = tokens.lengths
        self.tally.histogram += np.bincount(tokens.ids, minlength=len(self.tally.histogram))
        self.tally.add_lengths(lengths[lengths > 0] + self._measured.num_around)
        columns = self._columns(texts, tokens, hashes)
        numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
        of_document = np.fromiter((numbers[group] for group in groups), np.int64, len(groups))
        for group, number in numbers.items():
            chosen = of_document == number
            ids = tokens.ids if chosen.all() else tokens.ids[np.repeat(chosen, lengths)]
            self.tally.add_documents(group, hashes[chosen], columns[chosen], ids)

    def _columns(
        self, texts: Sequence[str], tokens: TokenBatch, hashes: npt.NDArray[np.uint64]
    ) -> Int64Array:
        """Shape (n, columns), by COLUMNS."""
        encoded = EncodedTexts.of(texts)
        words = self._cutter.cut(encoded)
        num_words = np.diff(words.edges)
        continued = np.full(len(texts), UNKNOWN_WORDS, np.int64)
        parts = np.zeros(len(texts), np.int64)
        if (table := self._measured.table) is not None:
            continued = continued_words(encoded, words, tokens, table)
            parts = count_where(table.is_part, tokens)
        spelled = continued != UNKNOWN_WORDS
        wanted = ~spelled & (hashes <= self._offsets_limit) & (table is not None)
        for index in np.flatnonzero(
            wanted
        ).tolist():  # a tokenizer that does not list its tokens has no offsets
            continued[index] = self._continued_by_offsets(texts[index], encoded, words, index)
        known = continued != UNKNOWN_WORDS
        values = {
            "documents": np.ones(len(texts), np.int64),
            "bytes": np.diff(encoded.edges),
            "characters": np.fromiter(map(len, texts), np.int64, len(texts)),
            "words": num_words,
            "tokens": tokens.lengths,
            "aligned_words": np.where(known, num_words, 0),
            "continued_words": np.where(known, continued, 0),
            "unknown_tokens": count_where(self._is_unknown, tokens),
            "part_tokens": parts,
            "spelled_documents": spelled.astype(np.int64),
        }
        return np.stack([values[name] for name in COLUMNS], axis=1)

    def _continued_by_offsets(
        self, text: str, encoded: EncodedTexts, words: WordSpans, index: int
    ) -> int:
        """The number of words of a text that span several tokens, by the reference's offsets."""
        start, stop = encoded.edges[index], encoded.edges[index + 1]
        begins = (encoded.data[start:stop] & 0xC0) != 0x80
        character = np.concatenate([np.zeros(1, np.int64), np.cumsum(begins)])
        spans = words.spans[words.edges[index] : words.edges[index + 1]] - start
        _, starts, stops = self._measured.encode_with_offsets(text)
        return continued_by_offsets(character[spans], starts, stops)


def continued_words(
    texts: EncodedTexts, words: WordSpans, tokens: TokenBatch, table: TokenTable
) -> Int64Array:
    """The number of words in each text that span several tokens, shape (n,).

    A word is taken with its space, as the tokenizer sees it, and a token can hold several. It
    is UNKNOWN_WORDS where the bytes of the tokens are not those of the text, but for one space
    before it: a normalizer changed it, or there were unknown characters.
    """
    return continued(texts, words, tokens.ids, tokens.offsets, table)


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


def token_table(tokens: dict[int, Token], largest_id: int) -> TokenTable:
    """Convert a mapping of tokens by id to arrays."""
    pieces = [tokens[i].data if i in tokens else b"" for i in range(largest_id + 1)]
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    is_part = np.zeros(largest_id + 1, np.bool_)
    for i, token in tokens.items():
        is_part[i] = token.is_plain and (token.is_fallback or token.is_fragment)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    data = np.frombuffer(b"".join(pieces), np.uint8)
    return TokenTable(data, offsets.astype(np.int32), is_part)

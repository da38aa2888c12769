"""Byte-level BPE with words from a compiled scanner (StarCoder, GPT-2, Llama 3, Qwen).

    new chunks ─scanner─▶ words ─a symbol for each byte─▶ ─merges─▶ ids

Chunks that may contain an added token, or that NFC may change, are left to the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.cuts import make_cuts
from tokenmill.encode.engines.chunks.locality import Json, matched_contents
from tokenmill.encode.engines.native.engine import NativeEngine
from tokenmill.encode.model_alone import merges_of
from tokenmill.encode.subword.merges import merge_table, merge_words
from tokenmill.errors import EngineError
from tokenmill.records import Int64Array, TokenBatch
from tokenmill.words.byte_strings import UInt8Array
from tokenmill.words.scanning import composed_already, scanner_of
from tokenmill.words.splits import split_of

BoolArray = npt.NDArray[np.bool_]

_NO_DROPOUT = np.uint64(0)


def load_byte_bpe(
    tokenizer: Json, control_tokens: bool, load_reference: Callable[[], Engine], cache_bytes: int
) -> Engine:
    """Load the engine of a tokenizer that `bpe_objection` admits."""
    model = ByteBpe(tokenizer, matched_contents(tokenizer, control_tokens))
    return NativeEngine(model, make_cuts(tokenizer, control_tokens), load_reference, cache_bytes)


class ByteBpe:
    """Encodes chunks: splits them into words, and merges the bytes of each word."""

    def __init__(self, tokenizer: Json, contents: Sequence[str]) -> None:
        scanner = scanner_of(split_of(tokenizer))
        if scanner is None:
            raise EngineError("native has no compiled code for the split of this tokenizer")
        self._scanner = scanner
        vocab = tokenizer["model"]["vocab"]
        # Bytes that never occur in UTF-8 need no token.
        self._symbols = np.array([vocab.get(symbol, 0) for symbol in byte_symbols()], np.int32)
        self._merges = merge_table(vocab, merges_of(tokenizer["model"]))
        patterns = [re.escape(content.encode()) for content in contents]
        self._added = re.compile(b"|".join(patterns)) if patterns else None

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """Return the ids of every chunk, and which chunks are left to the reference."""
        left_out = self._left_out(data, places)
        kept = np.where(left_out[:, None], places[:, :1], places)
        texts, offsets = gathered(data, kept)
        edges, words_before = self._scanner.all_edges(texts, offsets)
        symbols = self._symbols[texts]
        ids, ends = merge_words(symbols, edges, self._merges, _NO_DROPOUT, _NO_DROPOUT)
        return TokenBatch(ids.astype(np.uint32), ends[words_before]), left_out

    def _left_out(self, data: UInt8Array, places: Int64Array) -> BoolArray:
        """Return which chunks may contain an added token or change under NFC."""
        if not (self._added or self._scanner.composes):
            return np.zeros(len(places), np.bool_)
        texts, offsets = gathered(data, places)
        found = chunks_with(self._added, texts, offsets)
        if self._scanner.composes:
            found |= ~composed_already(texts, offsets)
        return found


def chunks_with(
    pattern: re.Pattern[bytes] | None, texts: UInt8Array, offsets: Int64Array
) -> BoolArray:
    """Return which chunks contain a match or a part of one; shape (num_chunks,)."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    joined = texts.tobytes()
    match = pattern.search(joined) if pattern else None
    while pattern and match:
        first, last = np.searchsorted(offsets, [match.start(), match.end() - 1], "right")
        found[first - 1 : last] = True
        match = pattern.search(joined, match.start() + 1)
    return found


def gathered(data: UInt8Array, places: Int64Array) -> tuple[UInt8Array, Int64Array]:
    """Concatenate the bytes of chunks; return them and their offsets."""
    lengths = places[:, 1] - places[:, 0]
    offsets = offsets_from_lengths(lengths)
    shifts = np.repeat(places[:, 0] - offsets[:-1], lengths)
    return data[shifts + np.arange(len(shifts))], offsets

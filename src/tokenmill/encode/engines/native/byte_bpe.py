"""Byte-level BPE with words from a compiled scanner (StarCoder, GPT-2, Qwen, CLIP, Falcon).

    new chunks ─byte_words─▶ words ─a symbol for each byte─▶ ─merges─▶ ids

Chunks that may contain an added token are left to the reference.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.cuts import make_cuts
from tokenmill.encode.engines.chunks.locality import Json, matched_contents
from tokenmill.encode.engines.native.byte_words import ByteWords
from tokenmill.encode.engines.native.engine import NativeEngine
from tokenmill.encode.model_alone import merges_of
from tokenmill.encode.subword.merges import merge_table, merge_words
from tokenmill.encode.words.byte_strings import UInt8Array
from tokenmill.encode.words.patterns import CLIP_SPECIALS

BoolArray = npt.NDArray[np.bool_]

DROPPED = -1
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
        self._words = ByteWords(tokenizer)
        model, vocab = tokenizer["model"], tokenizer["model"]["vocab"]
        # Bytes that never occur in UTF-8 need no token.
        self._symbols, self._last = (
            np.array([vocab.get(symbol + suffix, 0) for symbol in byte_symbols()], np.int32)
            for suffix in ("", model.get("end_of_word_suffix") or "")
        )
        if self._words.is_clip:  # drops words of white space, and may not split its special tokens
            self._symbols[[*string.whitespace.encode()]] = DROPPED
            self._last[[*string.whitespace.encode()]] = DROPPED
            contents = [*contents, *CLIP_SPECIALS]
        self._merges = merge_table(vocab, merges_of(model))
        patterns = [re.escape(content.encode()) for content in contents]
        flags = re.IGNORECASE if self._words.is_clip else re.NOFLAG  # it lower-cases texts
        self._added = re.compile(b"|".join(patterns), flags) if patterns else None

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """Return the ids of every chunk, and which chunks are left to the reference."""
        texts, offsets = gathered(data, places)
        left_out = chunks_with(self._added, texts, offsets)
        normalized, offsets = self._words.normalized(texts, offsets)
        if normalized is not texts:
            texts = normalized
            left_out |= chunks_with(self._added, texts, offsets)
        if left_out.any():
            spans = np.stack([offsets[:-1], offsets[1:]], axis=1)
            texts, offsets = gathered(texts, np.where(left_out[:, None], spans[:, :1], spans))
        edges, words_before = self._words.edges(texts, offsets)
        symbols, last = self._symbols[texts], edges[1:] - 1
        symbols[last] = self._last[texts[last]]
        ids, ends = merge_words(symbols, edges, self._merges, _NO_DROPOUT, _NO_DROPOUT)
        offsets = ends[words_before]
        if self._words.is_clip:
            kept = ids != DROPPED
            ids, offsets = ids[kept], offsets_from_lengths(kept)[offsets]
        return TokenBatch(ids.astype(np.uint32), offsets), left_out


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

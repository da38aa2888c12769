"""Byte-level BPE with words from a compiled scanner (StarCoder, GPT-2, Qwen, CLIP, Falcon).

    new chunks ─ByteWords─▶ words ─a symbol for each byte─▶ ─merges─▶ ids

Chunks that may contain an added token are left to the reference. The library normalizes the few
chunks that may change, apart from the case of ASCII letters.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Sequence

import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.core.records import BoolArray, Int64Array, TokenBatch, UInt8Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.engines.native.gate import splits_like_clip, splits_like_falcon
from tokenmill.encode.tokenizer_json import (
    Json,
    merges_of,
    normalizers,
    with_library,
)
from tokenmill.encode.words.characters import DIGIT, characters
from tokenmill.encode.words.patterns import CLIP_SPECIALS
from tokenmill.encode.words.scanning import (
    Scanner,
    clip_scanner,
    composed_already,
    falcon_scanner,
    scanner_of,
)
from tokenmill.encode.words.splits import split_of
from tokenmill.kernels.merges import merge_table, merge_words

DROPPED = -1


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
        ids, ends = merge_words(symbols, edges, self._merges)
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


_CAPITALS = slice(ord("A"), ord("Z") + 1)
_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[_CAPITALS] |= 0x20


class ByteWords:
    """The steps before the model of a tokenizer that `bpe_objection` admits."""

    def __init__(self, tokenizer: Json) -> None:
        self.is_clip, self._is_falcon = splits_like_clip(tokenizer), splits_like_falcon(tokenizer)
        self._is_nfc = normalizers(tokenizer) == [{"type": "NFC"}]
        self._normalizer = with_library(tokenizer, []).normalizer
        if self.is_clip:
            scanner: Scanner | None = clip_scanner()
        elif self._is_falcon:
            scanner = falcon_scanner()
        else:
            scanner = scanner_of(split_of({**tokenizer, "normalizer": None}))
        if scanner is None:
            raise EngineError("native has no compiled code for the split of this tokenizer")
        self._scanner = scanner
        symbols = [ord(symbol) for symbol in byte_symbols()]
        self._is_number = characters().classes[symbols] & DIGIT > 0

    def normalized(self, texts: UInt8Array, offsets: Int64Array) -> tuple[UInt8Array, Int64Array]:
        """Return the normalized chunks, `texts[offsets[i]:offsets[i + 1]]`, in the same form."""
        if self._normalizer is None:
            return texts, offsets
        if self._is_nfc:
            changed = np.flatnonzero(~composed_already(texts, offsets))
        else:
            changed = (
                np.unique(np.searchsorted(offsets, np.flatnonzero(texts >= 0x80), "right")) - 1
            )
        if len(changed):
            data = texts.tobytes()
            parts = [data[start:stop] for start, stop in itertools.pairwise(offsets)]
            for i in changed:
                parts[i] = self._normalizer.normalize_str(parts[i].decode()).encode()
            texts = np.frombuffer(b"".join(parts), np.uint8)
            offsets = offsets_from_lengths([len(part) for part in parts])
        return (_LOWER[texts] if self.is_clip else texts), offsets

    def edges(self, texts: UInt8Array, offsets: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the edges of words, shape (num_words + 1,), and the words before each chunk."""
        edges, words_before = self._scanner.all_edges(texts, offsets)
        if not self._is_falcon:
            return edges, words_before
        every = self._with_numbers(texts, edges)
        return every, np.searchsorted(every, edges[words_before])

    def _with_numbers(self, texts: UInt8Array, edges: Int64Array) -> Int64Array:
        r"""Return edges with those around numbers, and around groups of three digits in these.

        The bytes of a word are spelled like characters, and some bytes like numbers: \xbd like ½.
        """
        digit = (texts >= ord("0")) & (texts <= ord("9"))
        is_number, is_edge = self._is_number[texts], np.zeros(len(texts) + 1, np.bool_)
        is_edge[edges] = True
        is_edge[1:-1] |= is_number[1:] != is_number[:-1]
        begins = digit.copy()
        begins[1:] &= ~digit[:-1] | is_edge[1:-1]
        places = np.arange(len(texts))
        first = np.maximum.accumulate(np.where(begins, places, 0))
        in_run = digit[2:] & (first[2:] == first[:-2])
        groups = np.flatnonzero(digit[:-2] & in_run & ((places - first)[:-2] % 3 == 0))
        is_edge[groups] = is_edge[groups + 3] = True
        return np.flatnonzero(is_edge)

"""Normalize chunks of text and split them into words, for byte-level BPE.

The library normalizes the few chunks that may change, apart from the case of ASCII letters.
"""

from __future__ import annotations

import itertools

import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.engines.chunks.locality import Json, normalizers, with_library
from tokenmill.encode.engines.native.bpe_gate import splits_like_clip, splits_like_falcon
from tokenmill.encode.words.byte_strings import UInt8Array
from tokenmill.encode.words.characters import DIGIT, characters
from tokenmill.encode.words.scanning import (
    Scanner,
    clip_scanner,
    composed_already,
    falcon_scanner,
    scanner_of,
)
from tokenmill.encode.words.splits import split_of

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

"""BPE over the words of BERT's normalizer and pre-tokenizer, with an end-of-word suffix (GPT).

    new chunks ─normalized_words─▶ words ─symbols─▶ ─merges─▶ ids

If added tokens are matched, chunks that may contain one after normalization are left to the
reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.cuts import make_cuts
from tokenmill.encode.engines.chunks.locality import Json, matched_contents
from tokenmill.encode.engines.native.bpe_symbols import alphabet_of, symbols_of
from tokenmill.encode.engines.native.byte_bpe import chunks_with, gathered
from tokenmill.encode.engines.native.engine import NativeEngine
from tokenmill.encode.engines.native.normalized_words import character_images, normalized_words
from tokenmill.encode.model_alone import merges_of
from tokenmill.encode.subword.merges import merge_table, merge_words
from tokenmill.encode.words.byte_strings import UInt8Array

BoolArray = npt.NDArray[np.bool_]

_NO_DROPOUT = np.uint64(0)
_CHANGED = rb"[^\t\n\r -~]"
"""Characters that normalization may change or drop."""


def load_word_bpe(
    tokenizer: Json, control_tokens: bool, load_reference: Callable[[], Engine], cache_bytes: int
) -> Engine:
    """Load the engine of a tokenizer that `bpe_objection` admits."""
    model = WordBpe(tokenizer, matched_contents(tokenizer, control_tokens))
    return NativeEngine(model, make_cuts(tokenizer, control_tokens), load_reference, cache_bytes)


class WordBpe:
    """Encodes chunks: splits them into words, and merges the characters of each word."""

    def __init__(self, tokenizer: Json, contents: Sequence[str]) -> None:
        model = tokenizer["model"]
        self._images = character_images(tokenizer)
        self._alphabet = alphabet_of(model, marks_spaces=False)
        self._merges = merge_table(model["vocab"], merges_of(model))
        patterns = [_CHANGED, *(re.escape(content.encode()) for content in contents)]
        self._added = re.compile(b"|".join(patterns), re.IGNORECASE) if contents else None

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """Return the ids of every chunk, and which chunks are left to the reference."""
        texts, offsets = gathered(data, places)
        added = chunks_with(self._added, texts, offsets)
        kept = np.stack([offsets[:-1], np.where(added, offsets[:-1], offsets[1:])], axis=1)
        words, edges, words_before, left_out = normalized_words(texts, kept, self._images)
        spans = np.stack([edges[:-1], edges[1:]], axis=1)
        symbols, ends, known_before = symbols_of(words, spans, self._alphabet, False)
        ids, stops = merge_words(symbols, ends, self._merges, _NO_DROPOUT, _NO_DROPOUT)
        tokens = TokenBatch(ids.astype(np.uint32), stops[known_before[words_before]])
        return tokens, left_out | added

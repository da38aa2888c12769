"""BPE over the words of BERT's normalizer and pre-tokenizer, with ends of words (GPT).

    new chunks ─normalized_words─▶ words ─symbols─▶ ─merges─▶ ids

Where added tokens are looked for, chunks are left out that may hold one once they are normalized.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.cuts import make_cuts
from tokenmill.encode.engines.chunks.locality import Json, matched_contents
from tokenmill.encode.engines.native.bpe_symbols import alphabet_of, symbols_of
from tokenmill.encode.engines.native.byte_bpe import chunks_with, gathered
from tokenmill.encode.engines.native.engine import NativeEngine
from tokenmill.encode.engines.native.normalized_words import character_images, normalized_words
from tokenmill.encode.model_alone import merges_of
from tokenmill.encode.subword.merges import merge_table, merge_words
from tokenmill.records import Int64Array, TokenBatch
from tokenmill.words.byte_strings import UInt8Array

BoolArray = npt.NDArray[np.bool_]

_NO_DROPOUT = np.uint64(0)
_CHANGED = rb"[^\t\n\r -~]"
"""Characters that may become others, or nothing."""


def load_word_bpe(
    tokenizer: Json, control_tokens: bool, load_reference: Callable[[], Engine], cache_bytes: int
) -> Engine:
    """The engine of a tokenizer to which there is no objection."""
    model = WordBpe(tokenizer, matched_contents(tokenizer, control_tokens))
    return NativeEngine(model, make_cuts(tokenizer, control_tokens), load_reference, cache_bytes)


class WordBpe:
    """Words, symbols and merges of chunks."""

    def __init__(self, tokenizer: Json, contents: Sequence[str]) -> None:
        model = tokenizer["model"]
        self._images = character_images(tokenizer)
        self._alphabet = alphabet_of(model, marks_spaces=False)
        self._merges = merge_table(model["vocab"], merges_of(model))
        patterns = [_CHANGED, *(re.escape(content.encode()) for content in contents)]
        self._added = re.compile(b"|".join(patterns), re.IGNORECASE) if contents else None

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """The ids of every chunk."""
        texts, offsets = gathered(data, places)
        added = chunks_with(self._added, texts, offsets)
        kept = np.stack([offsets[:-1], np.where(added, offsets[:-1], offsets[1:])], axis=1)
        words, edges, words_before, left_out = normalized_words(texts, kept, self._images)
        spans = np.stack([edges[:-1], edges[1:]], axis=1)
        symbols, ends, known_before = symbols_of(words, spans, self._alphabet, False)
        ids, stops = merge_words(symbols, ends, self._merges, _NO_DROPOUT, _NO_DROPOUT)
        tokens = TokenBatch(ids.astype(np.uint32), stops[known_before[words_before]])
        return tokens, left_out | added

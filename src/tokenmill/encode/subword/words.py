"""Split texts into words of symbols: everything that happens before the model of a tokenizer.

The `tokenizers` library normalizes, pre-tokenizes and matches added tokens, with two copies of the
tokenizer. The first copy has no vocabulary, so it returns the words; this is much faster. If a
character of the words has neither a symbol nor byte symbols, the second copy is used. It has a BPE
model without merges, so it returns the initial symbols, and the number of the word of each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.encode.engine import call_library
from tokenmill.encode.tokenizer_json import BYTES, Json
from tokenmill.kernels.symbols import NUM_CODE_POINTS, symbols_of_words

WORDS_ONLY = {"type": "Unigram", "unk_id": 0, "vocab": [["\uffff", 0.0]]}


class Words(NamedTuple):
    """The words of one text, as symbols."""

    symbols: Int32Array
    """Shape (num_symbols,)."""
    offsets: Int64Array
    """Shape (num_words + 1,): word i is `symbols[offsets[i]:offsets[i + 1]]`; none is empty."""


class WordSplitter:
    """Splits texts into words like a tokenizer; strings of special tokens are ordinary text.

    `symbol_model` is a BPE model without merges.
    """

    def __init__(self, tokenizer: Json, symbol_model: Json) -> None:
        self._by_symbol = _copy(tokenizer, symbol_model)
        self._by_word = _copy(tokenizer, WORDS_ONLY)
        self._table = np.full(NUM_CODE_POINTS, -1, np.int32)
        vocab = symbol_model["vocab"]
        bytes_found = [vocab[name] for name in BYTES if name in vocab]
        falls_back = symbol_model.get("byte_fallback") and len(bytes_found) == len(BYTES)
        self._bytes = np.array(bytes_found if falls_back else [], np.int32)
        affixes = ("continuing_subword_prefix", "end_of_word_suffix")
        if not any(symbol_model.get(name) for name in affixes):
            alone = {ord(name): i for name, i in vocab.items() if len(name) == 1}
            self._table[list(alone)] = list(alone.values())
        else:
            self._bytes = self._bytes[:0]
        added = [token["content"] for token in tokenizer.get("added_tokens") or []]
        numbers = [self._by_word.token_to_id(content) for content in added]
        self._added = np.full(max(numbers, default=0) + 1, -1, np.int32)
        self._added[numbers] = [self.symbol(content) for content in added]

    def symbol(self, token: str) -> int:
        """Return the symbol of a token, or -1."""
        found = self._by_symbol.token_to_id(token)
        return -1 if found is None else int(found)

    def split(self, text: str) -> Words:
        """Return the words of a text.

        Raises:
            EngineError: the library failed on the text.
        """
        return call_library(self._split, text)

    def _split(self, text: str) -> Words:
        encoding = self._by_word.encode(text, add_special_tokens=False)
        words = encoding.tokens
        characters = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32)
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        added = self._added[np.fromiter(encoding.ids, np.int64, len(words))]
        symbols, ends = symbols_of_words(characters, lengths, added, self._table, self._bytes)
        if len(ends) == len(words) + 1:
            return Words(symbols, ends)
        encoding = self._by_symbol.encode(text, add_special_tokens=False)
        symbols = np.fromiter(encoding.ids, np.int32)
        numbers = np.fromiter(encoding.word_ids, np.int64)
        edges = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
        return Words(symbols, edges.astype(np.int64))


def _copy(tokenizer: Json, model: Json) -> Any:
    import tokenizers

    copy = {**tokenizer, "model": model}
    copy |= dict.fromkeys(("post_processor", "truncation", "padding"))
    made = tokenizers.Tokenizer.from_str(msgspec.json.encode(copy).decode())
    made.encode_special_tokens = True
    return made

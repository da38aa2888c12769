"""Texts to words of symbols: everything that happens before the model of a tokenizer.

Normalizer, pre-tokenizer and added tokens are those of the `tokenizers` library, run by it on
copies of the tokenizer. In one the model merges nothing, so its ids are exactly what the model
would have begun with: an id a character or byte, and the number of the word that it stands in.
In the other no token is known, so it gives words as they are, which takes far less time; it is
asked first, and its answer is taken where every character is a symbol, or bytes that are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from tokenmill.compiled import compiled, inlined
from tokenmill.errors import EngineError
from tokenmill.records import Int32Array, Int64Array, UInt32Array

Json = dict[str, Any]
NUM_CODE_POINTS = 0x110000
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS_ONLY = {"type": "Unigram", "unk_id": 0, "vocab": [["\uffff", 0.0]]}


class Words(NamedTuple):
    """The words of one text."""

    symbols: Int32Array
    """Shape (num_symbols,)."""
    offsets: Int64Array
    """Shape (num_words + 1,): word i is `symbols[offsets[i]:offsets[i + 1]]`; none is empty."""


class WordSplitter:
    """Cuts texts into words by a tokenizer's own rules; strings of special tokens are text.

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
        """The symbol that stands for a token, or -1."""
        found = self._by_symbol.token_to_id(token)
        return -1 if found is None else int(found)

    def split(self, text: str) -> Words:
        """The words of a text.

        Raises:
            EngineError: the library failed on it.
        """
        try:
            return self._split(text)
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a Rust panic is no Exception
            why = f"{type(error).__name__}: {error}"
            raise EngineError("tokenizers failed on a document", why=why) from error

    def _split(self, text: str) -> Words:
        encoding = self._by_word.encode(text, add_special_tokens=False)
        words = encoding.tokens
        characters = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32)
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        added = self._added[np.fromiter(encoding.ids, np.int64, len(words))]
        symbols, ends = _symbols(characters, lengths, added, self._table, self._bytes)
        if len(ends) == len(words) + 1:
            return Words(symbols, ends)
        encoding = self._by_symbol.encode(text, add_special_tokens=False)
        symbols = np.fromiter(encoding.ids, np.int32)
        numbers = np.fromiter(encoding.word_ids, np.int64)
        edges = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
        return Words(symbols, edges.astype(np.int64))


@compiled
def _symbols(
    characters: UInt32Array,
    lengths: Int64Array,
    added: Int32Array,
    table: Int32Array,
    bytes_: Int32Array,
) -> tuple[Int32Array, Int64Array]:
    """Symbols of words and their offsets; no offsets where a character has no symbol.

    `added`, shape (num_words,), holds the symbol of a word that is an added token, else -1.
    """
    symbols = np.empty(4 * len(characters), np.int32)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    utf8 = np.empty(4, np.int64)
    count, place = 0, 0
    for word in range(len(lengths)):
        stop = place + lengths[word]
        if added[word] >= 0:
            symbols[count] = added[word]
            count += 1
            place = stop
        while place < stop:
            symbol = table[characters[place]]
            size = 1
            if symbol >= 0:
                symbols[count] = symbol
            elif len(bytes_):
                size = _encode(np.int64(characters[place]), utf8)
                for i in range(size):
                    symbols[count + i] = bytes_[utf8[i]]
            else:
                return symbols[:0], offsets[:0]
            count += size
            place += 1
        offsets[word + 1] = count
    return symbols[:count].copy(), offsets


@inlined
def _encode(code_point: np.int64, utf8: Int64Array) -> int:
    """Write the UTF-8 bytes of a code point; their number."""
    size = 1 + int(code_point >= 0x80) + int(code_point >= 0x800) + int(code_point >= 0x10000)
    for i in range(size - 1, 0, -1):
        utf8[i] = 0x80 | (code_point & 0x3F)
        code_point >>= 6
    utf8[0] = code_point if size == 1 else code_point | ((0xF00 >> size) & 0xFF)
    return size


def _copy(tokenizer: Json, model: Json) -> Any:
    import tokenizers

    copy = {**tokenizer, "model": model}
    copy |= dict.fromkeys(("post_processor", "truncation", "padding"))
    made = tokenizers.Tokenizer.from_str(msgspec.json.encode(copy).decode())
    made.encode_special_tokens = True
    return made

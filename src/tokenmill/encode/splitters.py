"""Splits texts into words: normalized, pre-tokenized, before bytes are mapped to characters.

    scanner    tokenmill's compiled code, for published byte-level splits (`words/scanning.py`)
    memo       the library's answers, cached by chunk of text (`engines/chunks.py`)
    library    the tokenizers library itself, which defines the right words

Special and added tokens are not matched. Words keep everything that the pre-tokenizer keeps,
including spaces: GPT-2's split turns "a b" into "a" and " b".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.core.installed import installed_version
from tokenmill.core.records import Int64Array, TokenBatch, UInt8Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.engine import Engine, call_library
from tokenmill.encode.engines.chunks import MemoEngine
from tokenmill.encode.engines.locality import locality_objection
from tokenmill.encode.tokenizer_bounds import load_failures
from tokenmill.encode.tokenizer_json import pre_tokenizers, with_library
from tokenmill.encode.words.scanning import Scanner, composed_already, scanner_of
from tokenmill.encode.words.splits import Split
from tokenmill.encode.words.table import WordTable
from tokenmill.kernels.byte_strings import tags_of

SCANNER, MEMO, LIBRARY = "scanner", "memo", "library"

HASH_BASIS = np.uint64(0xCBF29CE484222325)


class Words(NamedTuple):
    """The words of a batch of texts."""

    data: UInt8Array
    """Shape (num_bytes,): all words, concatenated."""
    edges: Int64Array
    """Shape (num_words + 1,): word i is `data[edges[i]:edges[i + 1]]`; none is empty."""
    words_before: Int64Array
    """Shape (num_texts + 1,): how many words there are before each text."""


class Splitter(Engine, Protocol):
    """Splits texts into words.

    It is also an engine: each word's id is a 32-bit hash, so calibration and audits can compare
    splitters like engines.
    """

    def split(self, texts: Sequence[str]) -> Words:
        """Return the words of every text, in order."""

    def count(self, texts: Sequence[str], table: WordTable) -> int:
        """Add the words of the texts to a table; return how many there are."""
        found = self.split(texts)
        table.add(found.data, found.edges)
        return len(found.edges) - 1

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return a 32-bit hash of every word, the same in every process."""
        words = self.split(texts)
        hashes = tags_of(words.data, words.edges, HASH_BASIS).astype(np.uint32)
        return TokenBatch(hashes, words.words_before)


def word_splitters(split: Split) -> tuple[str, ...]:
    """Return the names of the splitters that are exact for a split, fastest first.

    The last is `library`.
    """
    local = not locality_objection(split.steps, control_tokens=False)
    exact = {SCANNER: scanner_of(split) is not None, MEMO: local, LIBRARY: True}
    return tuple(name for name, is_exact in exact.items() if is_exact)


def load_splitter(split: Split, name: str, cache_bytes: int) -> Splitter:
    """Load one of `word_splitters(split)`; `cache_bytes` limits the cache of memo.

    Raises:
        UserError: the library cannot load the split's normalizer or pre-tokenizer.
    """
    scanner = scanner_of(split) if name == SCANNER else None
    library = LibrarySplitter(split)
    if scanner is not None:
        return ScannerSplitter(scanner, library)
    return MemoSplitter(split, library, cache_bytes) if name == MEMO else library


class ScannerSplitter(Splitter):
    """Splits with compiled code; the library normalizes only texts that may need it."""

    name = SCANNER

    def __init__(self, scanner: Scanner, library: LibrarySplitter) -> None:
        self.version = installed_version("tokenmill")
        self._scanner = scanner
        self._library = library

    def split(self, texts: Sequence[str]) -> Words:
        """The words of every text, in order."""
        data, offsets = self._prepared(texts)
        return Words(data, *self._scanner.all_edges(data, offsets))

    def count(self, texts: Sequence[str], table: WordTable) -> int:
        """Add the words of the texts to a table; return how many there are."""
        data, offsets = self._prepared(texts)
        number = 0
        for edges in self._scanner.edges(data, offsets):
            table.add(data, edges)
            number += len(edges) - 1
        return number

    def _prepared(self, texts: Sequence[str]) -> tuple[UInt8Array, Int64Array]:
        """Return the normalized texts as one UTF-8 buffer, and their offsets."""
        data, offsets = _joined(texts)
        if self._scanner.composes:
            others = np.flatnonzero(~composed_already(data, offsets)).tolist()
            if others:
                texts = list(texts)
                for i in others:
                    texts[i] = self._library.normalize(texts[i])
                data, offsets = _joined(texts)
        if self._scanner.prefix_space:
            return _joined([f" {text}" if text[:1] not in {"", " "} else text for text in texts])
        return data, offsets


def _joined(texts: Sequence[str]) -> tuple[UInt8Array, Int64Array]:
    encoded = [text.encode() for text in texts]
    offsets = offsets_from_lengths([len(text) for text in encoded])
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


class LibrarySplitter(Splitter):
    """Splits with the normalizer and pre-tokenizer of the tokenizers library."""

    name = LIBRARY

    def __init__(self, split: Split) -> None:
        self.version = installed_version("tokenizers")
        with load_failures("", "cannot load the normalizer and the pre-tokenizer"):
            self._steps = with_library(split.steps, pre_tokenizers(split.steps))
        self._byte_level = split.byte_level

    def split(self, texts: Sequence[str]) -> Words:
        """The words of every text, in order.

        Raises:
            EngineError: the library failed, or a step after the byte level added characters.
        """
        words: list[str] = []
        words_before = [0]
        for text in texts:
            words += self._cut(text)
            words_before.append(len(words))
        if self._byte_level:
            lengths, data = [len(word) for word in words], _as_bytes("".join(words))
        else:
            encoded = [word.encode() for word in words]
            lengths, data = [len(word) for word in encoded], b"".join(encoded)
        edges = offsets_from_lengths(lengths)
        return Words(np.frombuffer(data, np.uint8), edges, np.asarray(words_before, np.int64))

    def normalize(self, text: str) -> str:
        """Return the normalized text."""
        normalizer = self._steps.normalizer
        return call_library(normalizer.normalize_str, text) if normalizer else text

    def _cut(self, text: str) -> list[str]:
        made = self.normalize(text)
        pieces = call_library(self._steps.pre_tokenizer.pre_tokenize_str, made)
        return [word for word, _ in pieces if word]


class MemoSplitter(Splitter):
    """Asks the library once for each distinct chunk of text, and caches the answers.

    It wraps the memo engine, with word numbers in place of token ids.
    """

    name = MEMO

    def __init__(self, split: Split, library: LibrarySplitter, cache_bytes: int) -> None:
        self.version = library.version
        self._numbering = _WordNumbers(library)
        self._tokenizer_json = msgspec.json.encode(split.steps)
        self._cache_bytes = cache_bytes
        self._forget()

    def split(self, texts: Sequence[str]) -> Words:
        """The words of every text, in order."""
        tokens = self._numbers(texts)
        return Words(*self._numbering.table.words(tokens.ids), tokens.offsets)

    def count(self, texts: Sequence[str], table: WordTable) -> int:
        """Add the words of the texts to a table; return how many there are."""
        numbers = self._numbers(texts).ids
        times = np.bincount(numbers)
        present = np.flatnonzero(times)
        table.add(*self._numbering.table.words(present), times[present])
        return len(numbers)

    def _numbers(self, texts: Sequence[str]) -> TokenBatch:
        if self._numbering.table.num_bytes > self._cache_bytes:
            self._forget()
        return self._engine.encode(texts)

    def _forget(self) -> None:
        # The cached chunks refer to word numbers, so both are dropped together.
        self._numbering.table = WordTable()
        self._engine = MemoEngine(self._numbering, self._tokenizer_json, False, self._cache_bytes)


class _WordNumbers:
    """An engine that returns the number of each word as its id."""

    name = LIBRARY

    def __init__(self, library: LibrarySplitter) -> None:
        self.version = library.version
        self._library = library
        self.table = WordTable()

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the number of every word."""
        found = self._library.split(texts)
        numbers = self.table.numbers(found.data, found.edges)
        return TokenBatch(numbers.astype(np.uint32), found.words_before)


def _as_bytes(spelled: str) -> bytes:
    """Return the bytes that byte-level characters spell."""
    values = np.full(1 << 16, -1, np.int16)
    values[[ord(symbol) for symbol in byte_symbols()]] = range(256)
    spelled_bytes = values[np.frombuffer(spelled.encode("utf-16-le"), np.uint16)]
    if (spelled_bytes < 0).any():
        strange = set(spelled).difference(byte_symbols())
        what = "cannot convert words back to bytes"
        why = f"a pre-tokenizer after ByteLevel adds {min(strange)!r}"
        raise EngineError(what, why=why, hint="put ByteLevel last")
    return spelled_bytes.astype(np.uint8).tobytes()

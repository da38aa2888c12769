"""Write words for SentencePiece's trainer, as lines of `word TAB count`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import UInt8Array
from tokenmill.encode.tokenizer_json import MARK as SPACE
from tokenmill.encode.words.counts import WordCounts

MAX_WORD_CHARACTERS = 4_096
"""The library aborts on words of 65,537 characters, and training Unigram takes seconds for each
word of that length."""
_BLOCK = "▅".encode()
_RESERVED = re.compile(b"[\0\t\n]|" + _BLOCK)
_SEPARATORS = (ord("\t"), ord("\n"))
_SPARE = (*range(1, 9), 11, 12, *range(14, 31))
"""Control characters that can replace tab and newline. They sort in the same order and before all
other characters, because the library breaks ties by code point."""


@dataclass(frozen=True, slots=True)
class SpelledWords:
    """Words that can be written as lines, and what was changed."""

    words: WordCounts
    """The words, in any order, possibly with duplicates."""
    spellings: dict[str, str]
    """The original of each replaced character in `words`."""
    long_words: int
    """Occurrences of words that were cut after every 4,096 characters."""
    reserved_words: int
    """Occurrences of words that were cut at U+0000, U+2585 (▅), or a tab or newline without a
    replacement."""

    def lines(self) -> Iterator[bytes]:
        """Yield each word with its count."""
        data, edges = self.words.data.tobytes(), self.words.offsets.tolist()
        for i, count in enumerate(self.words.counts.tolist()):
            yield b"%s\t%d\n" % (data[edges[i] : edges[i + 1]], count)


def spelled(words: WordCounts) -> SpelledWords:
    """Replace spaces by ▁, and replace or cut at separators and characters the library reserves.

    Raises:
        UserError: a word is not UTF-8.
    """
    _check_utf8(words)
    data, spellings = _separators_spelled(words.data)
    words = WordCounts(data, words.offsets, words.counts)
    raw = data.tobytes()
    lengths = np.diff(words.character_offsets())
    is_long = bool(len(lengths)) and int(lengths.max()) > MAX_WORD_CHARACTERS
    if not is_long and not any(c in raw for c in (b" ", b"\0", b"\t", b"\n", _BLOCK)):
        return SpelledWords(words, spellings, 0, 0)
    parts: list[bytes] = []
    counts: list[int] = []
    long_words = reserved_words = 0
    for i, count in enumerate(words.counts.tolist()):
        word = words.word(i).replace(b" ", SPACE.encode())
        pieces = _RESERVED.split(word)
        reserved_words += count * (len(pieces) > 1)
        if lengths[i] > MAX_WORD_CHARACTERS:
            long_words += count
            pieces = [part for piece in pieces for part in _cut(piece)]
        parts += filter(None, pieces)
        counts += [count] * sum(map(bool, pieces))
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    joined = np.frombuffer(b"".join(parts), np.uint8)
    made = WordCounts(joined, offsets, np.array(counts, np.int64))
    return SpelledWords(made, spellings, long_words, reserved_words)


def _separators_spelled(data: UInt8Array) -> tuple[UInt8Array, dict[str, str]]:
    """Replace tab and newline by control characters that no word contains, if there are any."""
    used = np.bincount(data, minlength=256) > 0
    wanted = [code for code in _SEPARATORS if used[code]]
    spare = [code for code in _SPARE if not used[code]]
    table = np.arange(256, dtype=np.uint8)
    pairs = list(zip(spare, wanted, strict=False))
    for ours, real in pairs:
        table[real] = ours
    return (table[data] if pairs else data), {chr(ours): chr(real) for ours, real in pairs}


def _cut(word: bytes) -> list[bytes]:
    text = word.decode()
    starts = range(0, len(text), MAX_WORD_CHARACTERS)
    return [text[start : start + MAX_WORD_CHARACTERS].encode() for start in starts]


def _check_utf8(words: WordCounts) -> None:
    try:
        words.data.tobytes().decode()
    except UnicodeDecodeError as error:
        where = f"byte {error.start:,} of the counted words"
        raise UserError("a word is not valid UTF-8", where=where) from error
    inside = (words.data[words.offsets[:-1]] & 0xC0) == 0x80 if len(words) else np.zeros(0)
    if inside.any():
        where = f"word {int(inside.argmax()):,} of the counted words"
        raise UserError("a word begins inside a character", where=where)

"""The initial symbols of words, before any merge: bytes or characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, Int64Array, UInt8Array
from tokenmill.encode import encodings
from tokenmill.encode.words.counts import WordCounts
from tokenmill.kernels.symbols import (
    DROPPED,
    FALLS_BACK,
    NUM_CODE_POINTS,
    count_characters,
    segment_words,
)

MAX_TOTAL = 1 << 62


@dataclass(frozen=True, slots=True)
class SegmentedWords:
    """Words as token ids; merges never cross words."""

    ids: Int32Array
    """Shape (num_tokens,)."""
    offsets: Int64Array
    """Shape (num_words + 1,): word i is `ids[offsets[i]:offsets[i + 1]]`."""
    counts: Int64Array
    """Shape (num_words,): occurrences."""
    num_fixed: int = 0
    """The number of tokens of the corpus left out of the words because they never merge."""
    num_dropped: int = 0
    """The number of characters in the corpus without a token."""

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the corpus."""
        return int(np.diff(self.offsets) @ self.counts) + self.num_fixed


@dataclass(frozen=True, slots=True)
class Symbols:
    """The tokens before the first merge, in id order, and how words are converted to them.

    Special tokens come first, if given, as in the `tokenizers` library.
    """

    strings: tuple[str, ...]
    """Each symbol as spelled in a tokenizer.json: "Ġ" for a byte-level space, "##a", "<0x0A>"."""
    texts: tuple[bytes, ...]
    """The UTF-8 bytes of each symbol."""
    lengths: Int32Array
    """Shape (num_symbols,): the lengths that `max_token_length` limits."""
    prefix: str = ""
    """The prefix of every symbol that continues a word; merged tokens have it only once."""
    table: Int32Array = field(default_factory=lambda: np.empty((0, 0), np.int32))
    """Ids of bytes, shape (1, 256); or of code points, shape (1 or 2, 0x110000), where the second
    row is for characters inside a word. DROPPED or FALLS_BACK if there is no id. Shape (0, 0) for
    words that are already segmented."""
    fallback: Int32Array = field(default_factory=lambda: np.empty(0, np.int32))
    """Shape (256,): ids of bytes, with byte fallback; else (0,)."""

    def __len__(self) -> int:
        return len(self.strings)

    def segment(self, words: WordCounts) -> SegmentedWords:
        """Convert words to ids of symbols."""
        if self.table.shape == (1, 256):
            return SegmentedWords(self.table[0][words.data], words.offsets, words.counts)
        ids = np.empty(len(words.data), np.int32)
        num_pieces = len(words)
        if len(self.fallback):
            num_pieces += len(words.data)
        offsets, counts = np.zeros(num_pieces + 1, np.int64), np.empty(num_pieces, np.int64)
        made = ids, offsets, counts
        num_ids, num_pieces, num_dropped, num_fixed = segment_words(
            *_read_only(words), self.table, made
        )
        return SegmentedWords(
            ids[:num_ids],
            offsets[: num_pieces + 1],
            counts[:num_pieces],
            int(num_fixed),
            int(num_dropped),
        )


def byte_symbols(special_tokens: Sequence[str] = ()) -> Symbols:
    """Return special tokens, then all 256 bytes in the order of GPT-2's byte alphabet."""
    alphabet = encodings.byte_symbols()
    specials = list(dict.fromkeys(special_tokens))
    strings = [*specials, *(c for c in sorted(alphabet) if c not in specials)]
    ids = {string: i for i, string in enumerate(strings)}
    by_string = {string: bytes([byte]) for byte, string in enumerate(alphabet)}
    texts = [by_string.get(string, string.encode()) for string in strings]
    table = np.array([[ids[string] for string in alphabet]], np.int32)
    return Symbols(tuple(strings), tuple(texts), np.ones(len(strings), np.int32), table=table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alphabet:
    """Which characters become symbols, and how they are spelled."""

    limit: int | None = None
    """The maximum number of characters; the most frequent ones are kept. Ties go to smaller code
    points (in the `tokenizers` library, to any)."""
    prefix: str = ""
    """The prefix of every character of a word except the first (WordPiece: "##")."""
    byte_fallback: bool = False
    """Whether other characters become <0x00> ... <0xFF>, which never merge."""


def character_symbols(
    words: WordCounts, alphabet: Alphabet, special_tokens: Sequence[str] = ()
) -> Symbols:
    """Return the characters of a corpus, in the order of their code points.

    Forms with a prefix follow, sorted. The `tokenizers` library numbers those in the
    order of a hash table, so its ids differ from run to run.

    Raises:
        UserError: the counts are so large that their sum could overflow.
    """
    require_countable(words.offsets, words.counts)
    rows = 1 + bool(alphabet.prefix)
    seen = characters_of(words, rows)
    specials = list(dict.fromkeys(special_tokens))
    strings = {token: token.encode() for token in specials}
    if alphabet.byte_fallback:
        strings |= {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}
    kept = _most_frequent(seen.sum(axis=0), alphabet.limit)
    for code in kept:
        strings.setdefault(chr(code), chr(code).encode())
    # Special tokens of one character also belong to the alphabet.
    kept = sorted({*kept, *(ord(token) for token in specials if len(token) == 1)})
    inside = [code for code in kept if rows > 1 and seen[1, code]]
    for code in inside:
        strings.setdefault(alphabet.prefix + chr(code), chr(code).encode())
    ids = {string: i for i, string in enumerate(strings)}
    table = np.full((rows, NUM_CODE_POINTS), DROPPED, np.int32)
    fallback = np.empty(0, np.int32)
    if alphabet.byte_fallback:
        table[:] = FALLS_BACK
        fallback = np.array([ids[f"<0x{byte:02X}>"] for byte in range(256)], np.int32)
    table[0, kept] = [ids[chr(code)] for code in kept]
    if inside:
        table[1, inside] = [ids[alphabet.prefix + chr(code)] for code in inside]
    lengths = np.ones(len(strings), np.int32)
    texts = tuple(strings.values())
    return Symbols(tuple(strings), texts, lengths, alphabet.prefix, table, fallback)


def characters_of(words: WordCounts, rows: int = 1) -> Int64Array:
    """Return the occurrences of each code point, shape (rows, NUM_CODE_POINTS).

    A second row is for all but the first character of a word.
    """
    seen = np.zeros((rows, NUM_CODE_POINTS), np.int64)
    count_characters(*_read_only(words), seen)
    return seen


def _read_only(words: WordCounts) -> tuple[UInt8Array, Int64Array, Int64Array]:
    """Return read-only arrays, so that functions are compiled once for mapped and other files."""
    views = words.data.view(), words.offsets.view(), words.counts.view()
    for view in views:
        view.flags.writeable = False
    return views


def require_countable(offsets: Int64Array, counts: Int64Array) -> None:
    """Raise a UserError if sums over words of these lengths could overflow."""
    total = float(np.diff(offsets).astype(np.float64) @ counts)
    if total > MAX_TOTAL:
        raise UserError(
            "the word counts are too large",
            why=f"they add up to {total:.3g} symbols; the limit is 2^62",
            hint="divide all weights by the same number",
        )


def _most_frequent(counts: Int64Array, limit: int | None) -> list[int]:
    """Return the code points of the most frequent characters, sorted."""
    codes = np.flatnonzero(counts)
    if limit is not None:
        codes = codes[np.argsort(-counts[codes], kind="stable")[:limit]]
    kept: list[int] = np.sort(codes).tolist()
    return kept


def given_symbols(strings: Iterable[str], texts: Iterable[bytes], prefix: str = "") -> Symbols:
    """Return symbols for the tokens of a vocabulary, in id order, to continue its merges."""
    strings = tuple(strings)
    lengths = np.fromiter(map(len, strings), np.int32, len(strings))
    return Symbols(strings, tuple(texts), lengths, prefix)

r"""Compiled scanners that find words like the regexes of published splits.

A scanner reads UTF-8 and a table of kinds (letter, digit, space ...), and writes the byte offset of
each word. It allocates nothing, releases the GIL, and reads every byte a small constant number of
times. Words end where leftmost matching with backtracking ends them; comments at each regex explain
what this means. `tests/encode/test_word_scanners.py` compares all scanners with the library.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, UInt8Array
from tokenmill.kernels.compiled import compiled, inner
from tokenmill.kernels.constants import COMPOSED, REORDERED
from tokenmill.kernels.memory import byte_at, code_at, eight_bytes_at, size_at, trailing_zeros

OTHER, LETTER, NUMBER, SPACES, NEWLINE, ALONE, UPPERCASE, LOWERCASE, MARKS = range(9)
"""Kinds of characters. ALONE is a word by itself, as in `Digits`. LETTER is any letter; UPPERCASE,
LOWERCASE and MARKS are only used if a split distinguishes them from other letters."""

GROUPS_RIGHT = 0
"""A value of `max_digits`: groups of three digits, counted from the end of a run."""

GPT2, CL100K, O200K = range(3)
"""The rules for the ends of words: of GPT-2; of cl100k, Llama 3 and Qwen; of o200k and Tekken."""

DOCUMENT, PLACE, WORDS = range(3)
"""Indices in a scan's state: the current document, the next byte, and the words so far."""


class Progress(NamedTuple):
    """The output of a scanner, which stops when `edges` is full and can resume from there."""

    state: Int64Array
    """Shape (3,): DOCUMENT, PLACE and WORDS; zeros before the first call. All documents are scanned
    when DOCUMENT equals the number of documents."""
    edges: Int64Array
    """Shape (max_words + 1,): the start of each word and the end of the last one; every call
    overwrites it."""
    words_before: Int64Array
    """Shape (num_documents + 1,): the number of words before each document."""


BLANK, APOSTROPHE, SLASH = ord(" "), ord("'"), ord("/")
LOWER_D, LOWER_E, LOWER_L, LOWER_M, LOWER_R, LOWER_S, LOWER_T, LOWER_V = b"delmrstv"
CONTINUATION = 0x80
LONG_S_FIRST, LONG_S_LAST = "\u017f".encode()
_EACH_BYTE = 0x0101010101010101
_HIGH_BITS = np.uint64(0x80 * _EACH_BYTE)
_LOWER_CASE = np.uint64(0x20 * _EACH_BYTE)
_FROM_A = np.uint64((0x80 - ord("a")) * _EACH_BYTE)
_AFTER_Z = np.uint64((0x7F - ord("z")) * _EACH_BYTE)
"""Added to seven bits of each byte, these set the high bit from "a" on, and from after "z" on."""


# The functions below take addresses: of the first byte of data, and of the table of kinds.


@inner
def kind_at(data: int, place: int, kinds: int) -> int:
    """Return the kind of the character at a place."""
    return byte_at(kinds + code_at(data, place))


@inner
def _ascii_letters_end(data: int, place: int, stop: int) -> int:
    """Return the place after the ASCII letters, or one within the last eight bytes."""
    while place + 8 <= stop:
        eight = eight_bytes_at(data + place)
        lower = (eight | _LOWER_CASE) & ~_HIGH_BITS
        letters = (lower + _FROM_A) & ~(lower + _AFTER_Z) & ~eight & _HIGH_BITS
        if letters != _HIGH_BITS:
            return place + (trailing_zeros(letters ^ _HIGH_BITS) >> 3)
        place += 8
    return place


@inner
def _run_end(data: int, place: int, stop: int, kinds: int, kind: int) -> int:
    """Return the end of a run of one kind; the place itself if no run starts there."""
    if kind == LETTER:
        place = _ascii_letters_end(data, place, stop)
    while place < stop and kind_at(data, place, kinds) == kind:
        place += size_at(data, place)
    return place


@inner
def _contraction_end(data: int, place: int, stop: int, fold: int) -> int:
    r"""Return the end of 's, 't, 're, 've, 'm, 'll or 'd; the place itself if none starts there.

    With `fold` 0x20, capitals match too, and U+017F matches s, as in `(?i:'s)`.
    """
    end = place
    if place + 1 < stop and byte_at(data + place) == APOSTROPHE:
        letter = byte_at(data + place + 1)
        first = letter | fold
        if first in (LOWER_S, LOWER_T, LOWER_M, LOWER_D):
            end = place + 2
        elif place + 2 < stop:
            last = byte_at(data + place + 2)
            second = last | fold
            ends_in_e = first in (LOWER_R, LOWER_V) and second == LOWER_E
            long_s = fold and letter == LONG_S_FIRST and last == LONG_S_LAST
            if ends_in_e or long_s or (first == LOWER_L and second == LOWER_L):
                end = place + 3
    return end


@inner
def _spaces_end(data: int, place: int, stop: int, kinds: int) -> int:
    r"""Return the end of `\s*[\r\n]+|\s+(?!\S)|\s+`.

    The first alternative is a run of white space up to its last line end. The others are a run of
    white space, without its last character if another character follows and the rest is not empty.
    """
    end, last, after_line = place, place, place
    while end < stop:
        kind = kind_at(data, end, kinds)
        if kind not in (SPACES, NEWLINE):
            break
        last = end
        end += size_at(data, end)
        if kind == NEWLINE:
            after_line = end
    if after_line > place:
        end = after_line
    elif end < stop and last > place and kind_at(data, end, kinds) != ALONE:
        end = last
    return end


@inner
def _rest_end(data: int, place: int, stop: int, kinds: int, slashes: int) -> int:
    r"""Return the end of ` ?[^\s\p{L}\p{N}]+[\r\n/]*`, or else of white space.

    The slash in the last class only counts if `slashes`.
    """
    body = place + (byte_at(data + place) == BLANK)
    end = body
    while end < stop and kind_at(data, end, kinds) in (OTHER, MARKS):
        end += size_at(data, end)
    if end == body:
        return _spaces_end(data, place, stop, kinds)
    while end < stop and (
        kind_at(data, end, kinds) == NEWLINE or (slashes and byte_at(data + end) == SLASH)
    ):
        end += 1
    return end


@inner
def _digits_end(data: int, place: int, start: int, stop: int, kinds: int, max_digits: int) -> int:
    r"""Return the end of `\p{N}{1,max_digits}`, or with GROUPS_RIGHT of a group of three.

    Digits of a run are only counted at its start: the number of digits after the first group is a
    multiple of three.
    """
    digits = max_digits
    if max_digits == GROUPS_RIGHT:
        digits, before = 3, place - 1
        while before > start and byte_at(data + before) & 0xC0 == CONTINUATION:
            before -= 1
        if place == start or kind_at(data, before, kinds) != NUMBER:
            length, end = 0, place
            while end < stop and kind_at(data, end, kinds) == NUMBER:
                end += size_at(data, end)
                length += 1
            digits = (length - 1) % 3 + 1
    for _ in range(digits):
        if place == stop or kind_at(data, place, kinds) != NUMBER:
            break
        place += size_at(data, place)
    return place


@inner
def _gpt2_end(data: int, place: int, stop: int, kinds: int, runs: int) -> int:
    r"""Find the end of 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+.

    With `runs`, a run of ALONE is one word, and there are no contractions: an apostrophe is ALONE.
    """
    end = place if runs else _contraction_end(data, place, stop, 0)
    if end == place:
        kind = kind_at(data, place, kinds)
        if kind == SPACES and byte_at(data + place) == BLANK and place + 1 < stop:
            kind = kind_at(data, place + 1, kinds)
            if kind in (SPACES, ALONE):
                kind = SPACES
            else:
                end += 1
        if kind == SPACES:
            end = _spaces_end(data, place, stop, kinds)
        elif kind == ALONE and not runs:
            end += size_at(data, end)
        else:
            end = _run_end(data, end, stop, kinds, kind)
    return end


@inner
def _cl100k_end(data: int, place: int, start: int, stop: int, kinds: int, max_digits: int) -> int:
    r"""Find the end of (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}.

    If none of them matches, find the end of characters that are neither letters nor digits.
    """
    end = _contraction_end(data, place, stop, 0x20)
    if end == place:
        kind = kind_at(data, place, kinds)
        if kind == NUMBER:
            end = _digits_end(data, place, start, stop, kinds, max_digits)
        else:
            letters = place
            if kind not in (LETTER, NEWLINE):
                letters += size_at(data, place)
            end = _run_end(data, letters, stop, kinds, LETTER)
            if end == letters:
                end = _rest_end(data, place, stop, kinds, 0)
    return end


@inner
def _cased_end(data: int, place: int, stop: int, kinds: int, kind: int) -> int:
    r"""Find the end of [^\r\n\p{L}\p{N}]?U*L+ or else [^\r\n\p{L}\p{N}]?U+L*.

    U is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and L is [\p{Ll}\p{Lm}\p{Lo}\p{M}]; `kind` is the kind of
    the first character. Returns the place itself if neither matches. U* takes a run, and L+ takes
    what follows. If no lower case follows, U* gives back its last character that L also matches,
    and the rest is another word. If there is no such character, U+ takes the run. L also takes a
    mark that could precede a word.
    """
    first = place
    if kind in (SPACES, OTHER, MARKS):
        first += size_at(data, place)
    end, taken_by_both = first, place
    while end < stop:
        following = kind_at(data, end, kinds)
        if following not in (UPPERCASE, LETTER, MARKS):
            break
        end += size_at(data, end)
        if following != UPPERCASE:
            taken_by_both = end
    if end < stop and kind_at(data, end, kinds) == LOWERCASE:
        while end < stop and kind_at(data, end, kinds) in (LOWERCASE, LETTER, MARKS):
            end += size_at(data, end)
    elif taken_by_both > place:
        end = taken_by_both
    elif kind == MARKS:
        end = first
    elif end == first:
        end = place
    return end


@inner
def _o200k_end(
    data: int, place: int, start: int, stop: int, kinds: int, options: tuple[int, int]
) -> int:
    r"""Find the end of a cased word with `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, or \p{N}{1,max_digits}.

    If neither matches, find the end of characters that are neither letters nor digits.
    """
    max_digits, contractions = options
    kind = kind_at(data, place, kinds)
    if kind == NUMBER:
        end = _digits_end(data, place, start, stop, kinds, max_digits)
    else:
        end = _cased_end(data, place, stop, kinds, kind)
        if end == place:
            end = _rest_end(data, place, stop, kinds, 1)
        elif contractions:
            end = _contraction_end(data, end, stop, 0x20)
    return end


@inner
def _word_end(
    data: int, place: int, start: int, stop: int, kinds: int, rule: int, options: tuple[int, int]
) -> int:
    """Return the end of the word that starts at a place of the document `data[start:stop]`."""
    if rule == GPT2:
        end = _gpt2_end(data, place, stop, kinds, options[1])
    elif rule == CL100K:
        end = _cl100k_end(data, place, start, stop, kinds, options[0])
    else:
        end = _o200k_end(data, place, start, stop, kinds, options)
    return end


@compiled
def scan(
    texts: UInt8Array,
    offsets: Int64Array,
    table: UInt8Array,
    progress: Progress,
    rule: int,
    options: tuple[int, int],
) -> int:
    """Write the edges of words, as many as fit, and return their number.

    `options` are `max_digits`, and for O200K whether contractions belong to the word before them;
    for GPT2, whether punctuation is split off first (Falcon).
    """
    data, kinds = texts.ctypes.data, table.ctypes.data
    state, edges, words_before = progress
    count, place = 0, state[PLACE]
    edges[0] = place
    for document in range(state[DOCUMENT], len(offsets) - 1):
        start, stop = offsets[document], offsets[document + 1]
        while place < stop and count < len(edges) - 1:
            place = _word_end(data, place, start, stop, kinds, rule, options)
            count += 1
            edges[count] = place
        state[DOCUMENT] = document
        if place < stop:
            break
        words_before[document + 1] = state[WORDS] + count
        state[DOCUMENT] = document + 1
    state[PLACE] = place
    state[WORDS] += count
    return count


@compiled
def composed_already(
    texts: UInt8Array, offsets: Int64Array, composition: UInt8Array
) -> npt.NDArray[np.bool_]:
    """Return whether documents are known to be in NFC; see `encode/words/scanning.py`."""
    data, table = texts.ctypes.data, composition.ctypes.data
    composed = np.ones(len(offsets) - 1, np.bool_)
    for document in range(len(composed)):
        place, stop, last = offsets[document], offsets[document + 1], 0
        while place < stop:
            kind = kind_at(data, place, table)
            if kind == COMPOSED or (kind == REORDERED and last == REORDERED):
                composed[document] = False
                break
            last = kind
            place += size_at(data, place)
    return composed

"""Compiled code that finds runs of words that documents share with other texts.

    texts ─words_of─▶ normalized words and hashes ─run_hashes─▶ a hash of each run of N words
      ─index_runs─▶ a table of the runs of some texts ─shared_runs─▶ the documents that share one

A hash only says where to look: runs count as shared if all bytes of their words are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array, UInt8Array, UInt64Array
from tokenmill.kernels.byte_strings import equal_bytes
from tokenmill.kernels.compiled import compiled, inlined, inner
from tokenmill.kernels.memory import byte_at, eight_bytes_at, folded_product
from tokenmill.kernels.word_boundaries import code_point

NUM_CHARACTERS = 0x33480
"""Characters from here on are no part of words: tags, variation selectors and private ones."""
IMAGE_BYTES, SPACE, ALONE, MARK = 0x0F, 0x10, 0x20, 0x40
"""Parts of a character's kind: the size of its image; whether it is white space; whether it is a
word on its own, with the marks after it; whether it is a combining mark."""
GROWTH = 4
"""The most bytes of images and spaces per byte of text."""
BLANK = 0x20
WORD_BITS = np.uint64(0xFFFFFFFF)
"""Of a slot."""


class Characters(NamedTuple):
    """How characters are normalized."""

    kinds: UInt8Array
    """Shape (NUM_CHARACTERS + 1,); the last one is for all other characters."""
    images: UInt64Array
    """Same shape: what a character becomes in words, up to 8 bytes of UTF-8, the first lowest."""


class Words(NamedTuple):
    """The normalized words of texts."""

    data: UInt8Array
    """UTF-8, with a space after each word."""
    starts: Int64Array
    """Shape (num_words + 1,): where words begin in `data`."""
    hashes: UInt64Array
    """Shape (num_words,)."""
    edges: Int64Array
    """Shape (num_texts + 1,): the words of text i are those from `edges[i]` to `edges[i + 1]`."""


class Runs(NamedTuple):
    """The runs of words of some texts."""

    words: Words
    texts: Int32Array
    """Shape (num_words,): the number of each word's text."""
    slots: UInt64Array
    """By hash: the word that begins a run + 1, with half of the hash above it; 0 if free."""
    following: Int32Array
    """Shape (num_words,): where the same run begins in another text; -1 if nowhere else."""


class Sightings(NamedTuple):
    """What documents have shared so far."""

    of_runs: Int64Array
    """Shape (num_words,): the last document with the run that begins here, or -1."""
    of_texts: Int64Array
    """Shape (num_texts,): the last document that shares a run with a text, or -1."""
    documents: Int64Array
    """Shape (num_texts,): the number of documents that share a run with a text."""


def words_of(
    texts: UInt8Array, offsets: Int64Array, characters: Characters, key: np.uint64
) -> Words:
    """Return the words of `texts[offsets[i]:offsets[i + 1]]`, UTF-8; broken bytes are left out."""
    size, num_texts = int(offsets[-1] - offsets[0]), len(offsets) - 1
    most = size // 2 + num_texts
    data = np.empty(GROWTH * size + num_texts + 8, np.uint8)
    starts, hashes = np.empty(most + 1, np.int64), np.empty(most, np.uint64)
    edges = np.zeros(num_texts + 1, np.int64)
    _write_words(texts, offsets, characters, key, data, starts, hashes, edges)
    count = int(edges[-1])
    return Words(data[: starts[count]], starts[: count + 1], hashes[:count], edges)


@inlined
def _hash(address: int, size: int, key: np.uint64) -> np.uint64:
    """Return the hash of some bytes; seven more can be read."""
    code = key ^ np.uint64(size)
    while size > 8:
        code = folded_product(code ^ eight_bytes_at(address), np.uint64(0x9E3779B97F4A7C15))
        address += 8
        size -= 8
    rest = eight_bytes_at(address) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * size))
    return folded_product(code ^ rest, np.uint64(0xC4CEB9FE1A85EC53)) ^ key


@compiled
def _write_words(
    texts: UInt8Array,
    offsets: Int64Array,
    characters: Characters,
    key: np.uint64,
    data: UInt8Array,
    starts: Int64Array,
    hashes: UInt64Array,
    edges: Int64Array,
) -> None:
    """Fill the arrays of `words_of`."""
    kinds, images = characters
    source, of_kinds, of_images = texts.ctypes.data, kinds.ctypes.data, images.ctypes.data
    address, size, count, start = data.ctypes.data, 0, 0, 0
    starts[0] = 0
    for text in range(len(offsets) - 1):
        place, stop, after_alone = offsets[text], offsets[text + 1], False
        while place <= stop:  # a line feed is read at the end
            code, width = 0x0A, 1
            if place < stop:
                code = byte_at(source + place)
                if code >= 0x80:
                    code, width = code_point(texts, place, stop)
                    code = min(code, NUM_CHARACTERS)
            kind, image = byte_at(of_kinds + code), eight_bytes_at(of_images + 8 * code)
            place += width
            apart = after_alone and kind & IMAGE_BYTES and not kind & MARK
            if kind & (SPACE | ALONE) or apart:
                after_alone = kind & ALONE != 0
                if size > start:
                    hashes[count] = _hash(address + start, size - start, key)
                    data[size] = BLANK
                    count += 1
                    size += 1
                    starts[count] = start = size
            for _ in range(kind & IMAGE_BYTES):
                data[size] = image & np.uint64(0xFF)
                image >>= np.uint64(8)
                size += 1
        edges[text + 1] = count


@compiled
def run_hashes(words: Words, length: int, factor: np.uint64) -> UInt64Array:
    """Return a hash of the `length` words from each word on, shape (num_words,); 0: too few.

    Runs end with their text. `factor` is odd.
    """
    hashes, edges = words.hashes, words.edges
    found = np.zeros(len(hashes), np.uint64)
    power = np.uint64(1)
    for _ in range(length):
        power *= factor
    for text in range(len(edges) - 1):
        first, code = edges[text], np.uint64(0)
        for word in range(first, edges[text + 1]):
            code = code * factor + hashes[word]
            if word >= first + length:
                code -= hashes[word - length] * power
            if word >= first + length - 1:
                mixed = folded_product(code ^ factor, np.uint64(0xFF51AFD7ED558CCD))
                found[word - length + 1] = mixed | np.uint64(1)
    return found


class _Addresses(NamedTuple):
    """The arrays of `Runs`: counting references to arrays takes longer than all other work."""

    slots: int
    starts: int
    data: int
    mask: int
    """One less than the number of slots."""


@inner
def _slot(code: np.uint64, run: int, size: int, length: int, table: _Addresses) -> int:
    """Return the slot of a run of `size` bytes at an address, or a free one if no slot has it."""
    slots, starts, data, mask = table
    slot = int(np.int64(code >> np.uint64(32))) & mask
    entry = eight_bytes_at(slots + 8 * slot)
    while entry:
        if (entry ^ code << np.uint64(32)) >> np.uint64(32) == 0:
            word = starts + 8 * (int(np.int64(entry & WORD_BITS)) - 1)
            start = int(np.int64(eight_bytes_at(word)))
            same_size = int(np.int64(eight_bytes_at(word + 8 * length))) - start == size
            if same_size and equal_bytes(run, data + start, size):
                break
        slot = (slot + 1) & mask
        entry = eight_bytes_at(slots + 8 * slot)
    return slot


@compiled
def index_runs(
    words: Words, codes: UInt64Array, texts: Int32Array, length: int, slots: UInt64Array
) -> Int32Array:
    """Fill the slots of `Runs` and return `following`; `codes` are the words' run hashes."""
    following = np.full(len(codes), -1, np.int32)
    data, starts = words.data.ctypes.data, words.starts
    table = _Addresses(slots.ctypes.data, starts.ctypes.data, data, len(slots) - 1)
    for word in range(len(codes) - 1, -1, -1):
        if codes[word]:
            start, stop = starts[word], starts[word + length]
            slot = _slot(codes[word], data + start, stop - start, length, table)
            if slots[slot]:
                later = np.int64(slots[slot] & WORD_BITS) - 1
                same_text = texts[later] == texts[word]
                following[word] = following[later] if same_text else later
            slots[slot] = codes[word] << np.uint64(32) | np.uint64(word + 1)
    return following


@compiled
def shared_runs(
    words: Words,
    codes: UInt64Array,
    numbers: Int64Array,
    length: int,
    runs: Runs,
    sightings: Sightings,
    most: int,
) -> tuple[Int64Array, Int64Array]:
    """Return how many texts share a run with each document, and where.

    Args:
        words: the words of the documents.
        codes: their run hashes.
        numbers: shape (num_documents,): the numbers of the documents. If a number was in a call
            before, texts that it was seen with are not counted again.
        length: words of a run.
        runs: the runs of the texts.
        sightings: what was seen before; is changed.
        most: how many texts of a document are returned at most.

    Returns:
        The number of texts, shape (num_documents,), and a row for each of them, shape (n, 3): the
        document's index, the first shared word in the document, and in the texts.
    """
    counts, rows = np.zeros(len(numbers), np.int64), np.empty((64, 3), np.int64)
    data, starts, edges = words.data.ctypes.data, words.starts, words.edges
    known, texts, slots, following = runs
    of_runs, of_texts, documents = sightings
    addresses = slots.ctypes.data, known.starts.ctypes.data, known.data.ctypes.data
    table = _Addresses(addresses[0], addresses[1], addresses[2], len(slots) - 1)
    filled = 0
    for document in range(len(numbers)):
        number = numbers[document]
        for word in range(edges[document], edges[document + 1]):
            if not codes[word]:
                continue
            start, stop = starts[word], starts[word + length]
            slot = _slot(codes[word], data + start, stop - start, length, table)
            place = np.int64(slots[slot] & WORD_BITS) - 1
            if place < 0 or of_runs[place] == number:
                continue
            of_runs[place] = number
            while place >= 0:
                text = texts[place]
                if of_texts[text] != number:
                    of_texts[text] = number
                    documents[text] += 1
                    counts[document] += 1
                    if counts[document] <= most:
                        if filled == len(rows):
                            rows = np.concatenate((rows, np.empty_like(rows)))
                        rows[filled, 0], rows[filled, 1], rows[filled, 2] = document, word, place
                        filled += 1
                place = np.int64(following[place])
    return counts, rows[:filled].copy()

"""Find the seed pieces of a Unigram trainer: frequent substrings of words, weighted by counts.

A substring that occurs once is not a seed. Neither is one that is always followed by the same
character: the longer substring is. The library has the same rule (inner nodes of a suffix tree),
but counts unique words as if each occurred twice. Like the library, this keeps the best seeds by
occurrences times characters, but only five per piece of the vocabulary: too many rare seeds would
take occurrences from the frequent ones, which would then be pruned.

Substrings of length n + 1 are found from those of length n: number them, pair the number with the
next character at each position, and sort the pairs. Most substrings are too rare for any longer one
to be among the best seeds, and are dropped early.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tokenmill.core.records import BoolArray, Int64Array
from tokenmill.encode.tokenizer_json import MARK as SPACE
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.sentencepiece.trainer_options import SentencePieceOptions

MAX_SEEDS = 1_000_000
SEEDS_A_PIECE = 5
MAX_CHARACTERS = 1 << 24
"""Characters of the words to search, most frequent words first; each takes about 80 bytes."""
_WIDTHS = ("FULLWIDTH", "HALFWIDTH")
_HAN = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")
_INHERITED = ("COMBINING", "VARIATION")


@dataclass(frozen=True, slots=True)
class Seeds:
    """The seeds of a Unigram trainer, in addition to single characters."""

    pieces: list[str]
    counts: Int64Array
    """Shape (num_seeds,): occurrences in the corpus."""
    num_words: int
    """The number of unique words searched; no other word is more frequent."""


class _Parts(NamedTuple):
    """All substrings of one length that are frequent enough, numbered."""

    size: int
    places: Int64Array
    """Shape (num_places,): the positions where one begins."""
    numbers: Int64Array
    """Shape (num_places,): the number of the substring at each position."""
    firsts: Int64Array
    """Shape (num_parts,): the first position of each substring."""
    counts: Int64Array
    """Shape (num_parts,): the occurrences of each substring in the corpus."""


def find_seeds(
    words: WordCounts, options: SentencePieceOptions, max_characters: int = MAX_CHARACTERS
) -> Seeds:
    """Return the seeds of words in the library's spelling, best first."""
    codes, weights, follows, num_words = _text(words, options, max_characters)
    is_used = np.bincount(codes) > 0
    numbers = (np.cumsum(is_used) - 1)[codes]
    alphabet_size = int(is_used.sum())
    places = np.arange(len(codes))
    parts = _Parts(1, places, numbers, places[:0], np.zeros(alphabet_size, np.int64))
    found: list[tuple[int, Int64Array, Int64Array]] = []
    number = min(SEEDS_A_PIECE * options.vocabulary_size, MAX_SEEDS)
    longest, least = options.max_piece_characters, 2
    for _ in range(longest - 1):
        longer, parents = _longer(parts, numbers, alphabet_size, weights, follows, least)
        if parts.size > 1:
            most = np.zeros(len(parts.counts), np.int64)
            np.maximum.at(most, parents, longer.counts)
            found.append(_seeds_of(parts, most))
        parts = longer
        least = max(least, -(-_score_to_reach(found, parts, number) // longest))
    if parts.size > 1:  # single characters are pieces in any case
        found.append(_seeds_of(parts, np.zeros(len(parts.counts), np.int64)))
    return _best(found, number, codes, num_words)


def _score_to_reach(
    found: list[tuple[int, Int64Array, Int64Array]], parts: _Parts, number: int
) -> int:
    """Return a score that at least `number` seeds reach, or 0.

    Each of the longest substrings so far will give a seed: itself, or the longer one that always
    takes its place.
    """
    scores = [size * counts for size, _, counts in found] + [parts.size * parts.counts]
    every = np.concatenate(scores)
    if len(every) < number:
        return 0
    return int(np.partition(every, len(every) - number)[len(every) - number])


def _longer(
    parts: _Parts,
    letters: Int64Array,
    alphabet_size: int,
    weights: Int64Array,
    follows: BoolArray,
    least: int,
) -> tuple[_Parts, Int64Array]:
    """Return the substrings with one more character, and the shorter substring each begins with.

    Those with fewer than `least` occurrences are left out.
    """
    size = parts.size
    goes_on = follows[parts.places + size - 1]
    places = parts.places[goes_on]
    pairs = parts.numbers[goes_on] * alphabet_size + letters[places + size]
    order = np.argsort(pairs)
    pairs, places = pairs[order], places[order]
    begins = np.diff(pairs, prepend=-1) != 0
    starts = np.flatnonzero(begins)
    if not len(starts):
        return _Parts(size + 1, places, pairs, starts, starts), starts
    counts = np.add.reduceat(weights[places], starts)
    kept = counts >= least
    numbers = (np.cumsum(kept) - 1)[np.cumsum(begins) - 1]
    stays = kept[np.cumsum(begins) - 1]
    firsts = np.minimum.reduceat(places, starts)[kept]
    longer = _Parts(size + 1, places[stays], numbers[stays], firsts, counts[kept])
    return longer, pairs[starts][kept] // alphabet_size


def _seeds_of(parts: _Parts, most: Int64Array) -> tuple[int, Int64Array, Int64Array]:
    """Return the substrings more frequent than their extensions: size, first positions, counts."""
    is_seed = most < parts.counts
    return parts.size, parts.firsts[is_seed], parts.counts[is_seed]


def _best(
    found: list[tuple[int, Int64Array, Int64Array]],
    number: int,
    codes: Int64Array,
    num_words: int,
) -> Seeds:
    if not found:
        return Seeds([], np.empty(0, np.int64), num_words)
    sizes = np.concatenate([np.full(len(counts), size) for size, _, counts in found])
    firsts = np.concatenate([places for _, places, _ in found])
    counts = np.concatenate([counts for _, _, counts in found])
    order = np.lexsort((firsts, sizes, -sizes * counts))[:number]
    text = codes.astype("<u4").tobytes().decode("utf-32-le")
    ranges = zip(firsts[order].tolist(), sizes[order].tolist(), strict=True)
    return Seeds([text[start : start + size] for start, size in ranges], counts[order], num_words)


def _text(
    words: WordCounts, options: SentencePieceOptions, max_characters: int
) -> tuple[Int64Array, Int64Array, BoolArray, int]:
    """Concatenate the most frequent words.

    Returns:
        The code points; the occurrences of the word of each; whether a piece may contain each
        together with the next one; and the number of words.
    """
    data = words.data.tobytes().decode().encode("utf-32-le")
    codes, offsets = np.frombuffer(data, "<u4"), words.character_offsets()
    order = np.argsort(-words.counts, kind="stable")
    sizes = np.diff(offsets)[order]
    order = np.sort(order[np.cumsum(sizes) <= max_characters])
    sizes = np.diff(offsets)[order]
    ends = np.cumsum(sizes)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
        offsets[order] - ends + sizes, sizes
    )
    codes = codes[places].astype(np.int64)
    follows = _follows(codes, options)
    follows[ends - 1] = False
    return codes, np.repeat(words.counts[order], sizes), follows, len(order)


def _follows(codes: Int64Array, options: SentencePieceOptions) -> BoolArray:
    """Return whether a piece may contain each character together with the next one."""
    kinds = {code: _kind(chr(code)) for code in np.unique(codes).tolist()}
    numbered = {kind: i for i, kind in enumerate(sorted(set(kinds.values())))}
    table = np.zeros(max(kinds, default=0) + 1, np.int64)
    table[list(kinds)] = [numbered[kind] for kind in kinds.values()]
    scripts = table[codes]
    if "inherited" in numbered:  # such characters take the script of the one before
        own = np.where(scripts == numbered["inherited"], 0, np.arange(len(codes)))
        scripts = scripts[np.maximum.accumulate(own)]
    is_space = codes == ord(SPACE)
    follows = np.zeros(len(codes), np.bool_)
    follows[:-1] = ~is_space[1:]
    follows[:-1] &= (scripts[:-1] == scripts[1:]) | is_space[:-1]
    if options.split_digits:
        is_digit = (codes >= ord("0")) & (codes <= ord("9"))
        follows[:-1] &= ~(is_digit[:-1] | is_digit[1:])
    return follows


def _kind(character: str) -> str:
    """Return the script of a letter or mark, "" for other characters.

    It is almost the same as in SentencePiece.
    """
    if unicodedata.category(character)[0] not in "LM":
        return ""
    first, *others = unicodedata.name(character, "").split() or [""]
    if first in _INHERITED:
        return "inherited"
    first = others[0] if first in _WIDTHS else first
    return "han" if first in _HAN else first

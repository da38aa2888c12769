"""The choice of a scanner for a split, and its table of character kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, UInt8Array
from tokenmill.encode.tokenizer_json import (
    SINGLE_DIGITS,
    Json,
    covers_text,
    normalizers,
    pre_tokenizers,
)
from tokenmill.encode.words import characters as c
from tokenmill.encode.words.patterns import (
    LLAMA3_SPLIT,
    NUMBERS,
    O200K_SPLIT,
    QWEN3_5_SPLIT,
    TEKKEN_SPLIT,
    with_numbers,
)
from tokenmill.encode.words.splits import Split
from tokenmill.kernels import word_scanner as s

WORDS_A_SCAN = 1 << 13
"""Edges found per scan; few enough that they stay in the processor's cache."""


class _Regex(NamedTuple):
    """The rule of a regex and its parameters."""

    rule: int
    kinds: tuple[tuple[int, int], ...]
    """Pairs of class bits and the kind of characters with any of these bits; later pairs win."""
    options: tuple[int, int] = (0, 0)
    newlines: bool = True
    """Whether line ends are a separate kind from other white space."""


_LETTERS = (c.UPPER | c.LOWER | c.CASELESS, s.LETTER)
_KINDS = (_LETTERS, (c.NUMBER, s.NUMBER), (c.SPACE, s.SPACES))
_WITH_MARKS = (*_KINDS, (c.MARK, s.LETTER))
_WITH_CASES = (*_KINDS, (c.UPPER, s.UPPERCASE), (c.LOWER, s.LOWERCASE), (c.MARK, s.MARKS))
_WITH_DIGITS = (*_KINDS, (c.DIGIT, s.ALONE))
_BY_PATTERN = {
    LLAMA3_SPLIT: _Regex(s.CL100K, _KINDS, (3, 0)),
    QWEN3_5_SPLIT: _Regex(s.CL100K, _WITH_MARKS, (1, 0)),
    O200K_SPLIT: _Regex(s.O200K, _WITH_CASES, (3, 1)),
    TEKKEN_SPLIT: _Regex(s.O200K, _WITH_CASES, (1, 0)),
}
for _pattern, _regex in list(_BY_PATTERN.items()):  # other cuts of numbers, as in `digits.py`
    for _number, _max_digits in zip(NUMBERS, (1, s.GROUPS_RIGHT), strict=True):
        _options = (_max_digits, _regex.options[1])
        _BY_PATTERN[with_numbers(_pattern, _number)] = _regex._replace(options=_options)


_CLIP = _Regex(
    s.GPT2, (_LETTERS, (c.NUMBER, s.ALONE), (c.SPACE, s.NEWLINE)), newlines=False
)  # as NEWLINE, white space is a word that no space joins
_FALCON = _Regex(s.GPT2, _KINDS, (0, 1), newlines=False)


class Scanner(NamedTuple):
    """The compiled scanner with a table, a rule and its options."""

    rule: int
    kinds: UInt8Array
    """Kinds of code points, shape (NUM_CODE_POINTS,)."""
    options: tuple[int, int]
    composes: bool
    """Whether texts are normalized to NFC first."""
    prefix_space: bool
    """Whether a space is added before every text that does not begin with one."""

    def edges(self, data: UInt8Array, offsets: Int64Array) -> Iterator[Int64Array]:
        """Yield arrays with the starts of some words and the end of the last one.

        Each array is valid until the next one is requested. `data` is normalized, valid UTF-8, and
        `offsets`, shape (num_documents + 1,), are the offsets of its documents.
        """
        yield from (edges for edges, _ in self._scanned(data, offsets))

    def all_edges(self, data: UInt8Array, offsets: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return all edges, shape (num_words + 1,), and the words before each document."""
        parts, words_before = [np.zeros(1, np.int64)], np.zeros(len(offsets), np.int64)
        for edges, before in self._scanned(data, offsets):
            parts.append(edges[1:].copy())
            words_before = before
        return np.concatenate(parts), words_before

    def _scanned(
        self, data: UInt8Array, offsets: Int64Array
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        progress = s.Progress(
            np.zeros(3, np.int64),
            np.zeros(WORDS_A_SCAN + 1, np.int64),
            np.zeros(len(offsets), np.int64),
        )
        while progress.state[s.DOCUMENT] < len(offsets) - 1:
            count = s.scan(data, offsets, self.kinds, progress, self.rule, self.options)
            yield progress.edges[: count + 1], progress.words_before


def scanner_of(split: Split) -> Scanner | None:
    """Return the scanner for a split, or None if there is none."""
    normalizer = [step["type"] for step in normalizers(split.steps)]
    steps = pre_tokenizers(split.steps)
    if normalizer not in ([], ["NFC"]) or not steps or steps[-1]["type"] != "ByteLevel":
        return None
    regex = _regex_of(steps[:-1], bool(steps[-1].get("use_regex", True)))
    prefix_space = bool(steps[-1].get("add_prefix_space", True))
    if regex is None or (prefix_space and len(steps) > 1):
        return None
    return Scanner(regex.rule, _table(regex), regex.options, bool(normalizer), prefix_space)


def clip_scanner() -> Scanner:
    """Return the scanner of CLIP's words. Words of white space are to be dropped."""
    return Scanner(_CLIP.rule, _table(_CLIP), _CLIP.options, composes=False, prefix_space=False)


def falcon_scanner() -> Scanner:
    """Return the scanner of GPT-2's words between runs of what `Punctuation` splits off."""
    from tokenizers import pre_tokenizers

    splits = pre_tokenizers.Punctuation().pre_tokenize_str
    candidates = np.flatnonzero(c.characters().classes & (c.SYMBOL | c.MARK))
    table = _table(_FALCON)
    table[[code for code in candidates if len(splits("a" + chr(code))) > 1]] = s.ALONE
    return Scanner(_FALCON.rule, table, _FALCON.options, composes=False, prefix_space=False)


def _regex_of(steps: Sequence[Json], gpt2_regex: bool) -> _Regex | None:
    """Return the scanner that is equivalent to the steps before a byte level."""
    if gpt2_regex:
        with_digits = [*steps] == [SINGLE_DIGITS]
        kinds = _WITH_DIGITS if with_digits else _KINDS
        return _Regex(s.GPT2, kinds, newlines=False) if with_digits or not steps else None
    if len(steps) != 1 or steps[0]["type"] != "Split":
        return None
    if not covers_text(steps[0]):
        return None
    return _BY_PATTERN.get(steps[0]["pattern"].get("Regex", ""))


def _table(regex: _Regex) -> UInt8Array:
    """Return the kinds of all code points."""
    classes = c.characters().classes
    table = np.full(len(classes), s.OTHER, np.uint8)
    for bits, kind in regex.kinds:
        table[classes & bits > 0] = kind
    if regex.newlines:
        table[[ord("\r"), ord("\n")]] = s.NEWLINE
    return table


def composed_already(data: UInt8Array, offsets: Int64Array) -> npt.NDArray[np.bool_]:
    """Return whether documents are known to be in NFC, shape (num_documents,).

    This is a quick check as in Unicode's annex 15: False means that a document may or may not be
    in NFC.
    """
    return s.composed_already(data, offsets, c.characters().composition)

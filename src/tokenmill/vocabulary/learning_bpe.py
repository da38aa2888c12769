"""BPE: merges of bytes or characters, learnt once for every size, and their files."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np

from tokenmill.encode.encodings import ENCODINGS
from tokenmill.errors import UserError
from tokenmill.records import Advance
from tokenmill.vocabulary.bpe.learning import learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.symbols import Alphabet, Symbols, byte_symbols, character_symbols
from tokenmill.vocabulary.files import spelled
from tokenmill.vocabulary.learning import Learned, Lesson, Vocabulary
from tokenmill.vocabulary.tokenizer_json import bpe_model, compose, numbered, pre_tokenizers
from tokenmill.words.counts import WordCounts
from tokenmill.words.splits import Split

SMALLEST_SIZE = 512
"""Where the curve begins, to double from there on."""


def learn_bpe(lesson: Lesson, advance: Advance) -> Learned:
    """Learn the merges of the largest vocabulary; the smaller ones are their beginnings.

    Raises:
        UserError: the alphabet and the special tokens alone are more than a vocabulary.
    """
    options = lesson.options
    symbols = _symbols(lesson)
    for size in (options.size, *options.smaller_sizes):
        _require_room(size, len(symbols), lesson)
    limits = MergeOptions(
        vocabulary_size=options.size - len(lesson.specials),
        min_frequency=options.vocabulary.min_frequency,
        max_token_length=options.vocabulary.max_token_length,
    )
    merges = learn_merges(lesson.words, symbols, limits, advance)
    largest = merges.vocabulary_size + len(lesson.specials)
    smaller = [size for size in reversed(options.smaller_sizes) if size < largest]
    vocabularies = [_vocabulary(merges, lesson)]
    vocabularies += [
        _vocabulary(merges.cut(size - len(lesson.specials)), lesson) for size in smaller
    ]
    return Learned(vocabularies, _curve(merges, len(lesson.specials), [*smaller, largest]))


def _symbols(lesson: Lesson) -> Symbols:
    vocabulary = lesson.options.vocabulary
    if lesson.split.byte_level:
        for name in ("character_coverage", "limit_alphabet", "byte_fallback"):
            if getattr(vocabulary, name):
                raise UserError(
                    f"--{name.replace('_', '-')} is for models over characters",
                    why=f"the split {lesson.split.name!r} spells every text in 256 bytes",
                    hint="leave it out, or choose --split metaspace",
                )
        return byte_symbols()
    limit = vocabulary.limit_alphabet
    if vocabulary.character_coverage is not None:
        limit = covering_characters(lesson.words, vocabulary.character_coverage)
    alphabet = Alphabet(limit=limit, byte_fallback=vocabulary.byte_fallback)
    return character_symbols(lesson.words, alphabet)


def covering_characters(words: WordCounts, coverage: float) -> int:
    """How many of the most frequent characters make up a share of the text."""
    # A character begins wherever a byte is no continuation of one.
    starts = np.flatnonzero((words.data & 0xC0) != 0x80)
    text = words.data.tobytes().decode()
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    word_of = np.searchsorted(words.offsets, starts, side="right") - 1
    totals = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    np.add.at(totals, codes, words.counts[word_of])
    descending = np.sort(totals[totals > 0])[::-1]
    return int(np.searchsorted(np.cumsum(descending), coverage * descending.sum())) + 1


def _require_room(size: int, num_symbols: int, lesson: Lesson) -> None:
    needed = num_symbols + len(lesson.specials)
    if size < needed:
        raise UserError(
            f"a vocabulary of {size:,} is too small",
            why=f"{num_symbols:,} symbols and {len(lesson.specials):,} special tokens come first",
            hint="choose a larger --vocabulary"
            + ("" if lesson.split.byte_level else ", or leave rare characters out: "
            "--character-coverage 0.9995 --byte-fallback"),
        )  # fmt: skip


def _vocabulary(merges: Merges, lesson: Lesson) -> Vocabulary:
    strings = merges.strings()
    numbering = lesson.specials.numbered(len(strings))
    vocab = numbered(numbering.special_ids, strings, numbering.other_ids)
    pairs = [(strings[left], strings[right]) for left, right in merges.pairs.tolist()]
    unk = None if lesson.split.byte_level else lesson.specials.roles.get("unk")
    fallback = lesson.options.vocabulary.byte_fallback
    model = bpe_model(vocab, pairs, unk, fallback)
    tokenizer = compose(lesson.split, model, numbering.special_ids, lesson.specials.roles)
    files = {"tokenizer.json": spelled(tokenizer)}
    is_plain = len(merges) + len(merges.symbols) == len(strings)
    if is_plain and rank_pattern(lesson.split):
        files["tokenizer.tiktoken"] = _rank_file(merges.texts(), numbering.other_ids)
    # Characters without a token are left out of the words, so the merges saw neighbours that are
    # none where an unknown token takes their place.
    num_tokens = None if merges.num_dropped else merges.num_tokens()
    return Vocabulary(len(vocab), numbering.special_ids, files, num_tokens)


def rank_pattern(split: Split) -> str:
    """The regular expression that gives tiktoken the same words; "" if there is no single one."""
    if split.normalizer is not None or not split.byte_level:
        return ""
    match pre_tokenizers(split):
        case [{"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}]:
            return ENCODINGS["gpt2"].pattern
        case [
            {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated"},
            {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False},
        ]:
            return regex
    return ""


def _rank_file(texts: Sequence[bytes], ids: Sequence[int]) -> bytes:
    """One "base64 id" a line. tiktoken merges any two neighbours that spell a token, lowest id
    first; that gives the same tokens, because each token was learnt when its text was in two parts.
    """
    lines = (b"%s %d\n" % (base64.b64encode(t), i) for t, i in zip(texts, ids, strict=True))
    return b"".join(lines)


def _curve(merges: Merges, num_specials: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Tokens of the corpus at powers of two, and at the sizes that are written."""
    first = len(merges.symbols) + num_specials
    largest = max(sizes)
    powers = [SMALLEST_SIZE << i for i in range(24)]
    chosen = {first, *sizes, *(power for power in powers if first < power < largest)}
    return [(size, merges.cut(size - num_specials).num_tokens()) for size in sorted(chosen)]

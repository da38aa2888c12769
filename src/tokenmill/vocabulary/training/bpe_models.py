"""Train BPE models over bytes or characters, for all vocabulary sizes at once."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import Split
from tokenmill.store.counts.folder import open_counts
from tokenmill.vocabulary.bpe.learning import learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.space_runs import learn_merges_after_runs
from tokenmill.vocabulary.bpe.symbols import Alphabet, Symbols, byte_symbols, character_symbols
from tokenmill.vocabulary.parity.options import ParityOptions
from tokenmill.vocabulary.parity.parity_merges import learn_parity_merges
from tokenmill.vocabulary.training.lesson import Learned, Lesson, Vocabulary, alphabet_limit
from tokenmill.vocabulary.training.output import spelled
from tokenmill.vocabulary.training.tokenizer_json import (
    bpe_model,
    compose,
    numbered,
    pre_tokenizers,
)

SMALLEST_SIZE = 512
"""The first size of the curve; the following ones are doubled."""


def learn_bpe(lesson: Lesson, advance: Advance) -> Learned:
    """Learn the merges of the largest vocabulary; smaller vocabularies use the first of them.

    Raises:
        UserError: a vocabulary is too small for the alphabet and the special tokens.
    """
    options = lesson.options
    symbols = _symbols(lesson)
    num_first = len(symbols) + max(options.vocabulary.whitespace_runs - 1, 0)
    for size in (options.size, *options.smaller_sizes):
        _require_room(size, num_first, lesson)
    learn = _learn_alike if options.groups.parity else _learn_most_frequent
    merges, remarks = learn(lesson, symbols, advance)
    largest = merges.vocabulary_size + len(lesson.specials)
    smaller = [size for size in reversed(options.smaller_sizes) if size < largest]
    vocabularies = [_vocabulary(merges, lesson)]
    vocabularies += [
        _vocabulary(merges.cut(size - len(lesson.specials)), lesson) for size in smaller
    ]
    if vocabularies[0].num_tokens is None:
        return Learned(vocabularies, remarks=remarks)
    curve = _curve(merges, len(lesson.specials), [*smaller, largest])
    return Learned(vocabularies, curve, remarks)


def _learn_most_frequent(
    lesson: Lesson, symbols: Symbols, advance: Advance
) -> tuple[Merges, list[str]]:
    vocabulary = lesson.options.vocabulary
    limits = MergeOptions(
        vocabulary_size=lesson.options.size - len(lesson.specials),
        min_frequency=vocabulary.min_frequency,
        max_token_length=vocabulary.max_token_length,
    )
    if vocabulary.whitespace_runs > 1:
        longest = vocabulary.whitespace_runs
        return learn_merges_after_runs(lesson.words, symbols, longest, limits, advance), []
    return learn_merges(lesson.words, symbols, limits, advance), []


def _learn_alike(lesson: Lesson, symbols: Symbols, advance: Advance) -> tuple[Merges, list[str]]:
    """Learn parity-aware merges; also return notes on what each group gained."""
    vocabulary, groups = lesson.options.vocabulary, lesson.options.groups
    limits = ParityOptions(
        num_merges=lesson.options.size - len(lesson.specials) - len(symbols),
        variant=groups.parity or "base",
        min_frequency=vocabulary.min_frequency,
        max_token_length=vocabulary.max_token_length,
    )
    dev = None
    if groups.parity_counts is not None:
        dev = _parallel_words(groups.parity_counts, lesson)
    premiums = lesson.options.byte_premiums
    ratios = {name: premiums.get(name, 1.0) for name in lesson.groups}
    found = learn_parity_merges(
        lesson.groups,
        symbols,
        limits,
        dev=dev,
        ratios=None if dev is not None else ratios,
        advance=advance,
    )
    before, after = found.tokens[:, 0], found.tokens[:, 1]
    shares = sorted(zip((before / after).tolist(), found.languages, strict=True))
    (least, worst), (most, best) = shares[0], shares[-1]
    remarks = [f"merges compress groups {least:.2f} times ({worst}) to {most:.2f} times ({best})"]
    if found.exhausted:
        remarks.append(f"no pairs were left for {', '.join(found.exhausted)}")
    return found.merges, remarks


def _parallel_words(folder: str, lesson: Lesson) -> dict[str, WordCounts]:
    """Return the words of the parallel texts, which decide which group is compressed worst."""
    parallel = open_counts(folder)
    if lesson.split.steps != parallel.split.steps:
        hint = "count both with the same --split"
        raise UserError(
            "the parallel texts were counted with another split", where=folder, hint=hint
        )
    return {name: parallel.groups[name] for name in lesson.groups if name in parallel.groups}


def _symbols(lesson: Lesson) -> Symbols:
    vocabulary = lesson.options.vocabulary
    if lesson.split.byte_level:
        for name in ("character_coverage", "limit_alphabet", "byte_fallback"):
            if getattr(vocabulary, name):
                raise UserError(
                    f"--{name.replace('_', '-')} works only with models over characters",
                    why=f"the split {lesson.split.name!r} represents texts as bytes",
                    hint="remove the option, or choose --split metaspace",
                )
        return byte_symbols()
    if vocabulary.whitespace_runs:
        why = f"words of the split {lesson.split.name!r} do not contain runs of spaces"
        raise UserError("--whitespace-runs works only with models over bytes", why=why)
    alphabet = Alphabet(limit=alphabet_limit(lesson), byte_fallback=vocabulary.byte_fallback)
    return character_symbols(lesson.words, alphabet)


def _require_room(size: int, num_symbols: int, lesson: Lesson) -> None:
    needed = num_symbols + len(lesson.specials)
    if size < needed:
        raise UserError(
            f"a vocabulary of {size:,} is too small",
            why=f"{num_symbols:,} symbols and {len(lesson.specials):,} special tokens come first",
            hint="choose a larger --vocabulary"
            + ("" if lesson.split.byte_level else ", or exclude rare characters: "
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
    # Training drops characters without a token, but the tokenizer puts an unknown token in their
    # place, so the predicted number of tokens would be wrong.
    num_tokens = None if merges.num_dropped else merges.num_tokens()
    return Vocabulary(len(vocab), numbering.special_ids, files, num_tokens)


def rank_pattern(split: Split) -> str:
    """Return the regular expression that gives tiktoken the same words; "" if there is none."""
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
    """Return a rank file: one "base64 id" per line.

    tiktoken merges any two neighbours that spell a token, lowest id first. The tokens are the same,
    because each token was learned when its text was in two parts.
    """
    lines = (b"%s %d\n" % (base64.b64encode(t), i) for t, i in zip(texts, ids, strict=True))
    return b"".join(lines)


def _curve(merges: Merges, num_specials: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the tokens of the corpus at powers of two, and at the sizes of the vocabularies."""
    first = len(merges.symbols) + num_specials
    largest = max(sizes)
    powers = [SMALLEST_SIZE << i for i in range(24)]
    chosen = {first, *sizes, *(power for power in powers if first < power < largest)}
    return [(size, merges.cut(size - num_specials).num_tokens()) for size in sorted(chosen)]

"""Train BPE models over bytes or characters, for all vocabulary sizes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance
from tokenmill.encode.encodings import spelled_ranks
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.tokenizer_json import pre_tokenizers
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import Split
from tokenmill.store.counts.folder import open_counts
from tokenmill.vocabulary.bpe.learning import learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.parity import ParityOptions, learn_parity_merges
from tokenmill.vocabulary.bpe.space_runs import learn_merges_after_runs
from tokenmill.vocabulary.bpe.symbols import Alphabet, Symbols, byte_symbols, character_symbols
from tokenmill.vocabulary.training.tokenizer_json import bpe_model, finished
from tokenmill.vocabulary.training.training_input import (
    TrainedModel,
    TrainingInput,
    Vocabulary,
    alphabet_limit,
)

SMALLEST_SIZE = 512
"""The first size of the curve; the following ones are doubled."""


def learn_bpe(given: TrainingInput, advance: Advance) -> TrainedModel:
    """Learn the merges of the largest vocabulary; smaller vocabularies use the first of them.

    Raises:
        UserError: a vocabulary is too small for the alphabet and the special tokens.
    """
    options, num_specials = given.options.vocabulary, len(given.specials)
    symbols = _symbols(given)
    num_first = len(symbols) + max(options.whitespace_runs - 1, 0)
    for size in (given.options.size, *given.options.smaller_sizes):
        _require_room(size, num_first, given)
    limits = MergeOptions(
        vocabulary_size=given.options.size - num_specials,
        min_frequency=options.min_frequency,
        max_token_length=options.max_token_length,
    )
    remarks: list[str] = []
    if given.options.groups.parity:
        merges, remarks = _learn_alike(given, symbols, limits, advance)
    elif options.whitespace_runs > 1:
        longest = options.whitespace_runs
        merges = learn_merges_after_runs(given.words, symbols, longest, limits, advance)
    else:
        merges = learn_merges(given.words, symbols, limits, advance)
    sizes = given.sizes(merges.vocabulary_size)
    vocabularies = [_vocabulary(merges.cut(size - num_specials), given) for size in sizes]
    if vocabularies[0].num_tokens is None:
        return TrainedModel(vocabularies, remarks=remarks)
    return TrainedModel(vocabularies, _curve(merges, num_specials, sizes), remarks)


def _learn_alike(
    given: TrainingInput, symbols: Symbols, limits: MergeOptions, advance: Advance
) -> tuple[Merges, list[str]]:
    """Learn parity-aware merges; also return notes on what each group gained."""
    groups, premiums = given.options.groups, given.options.byte_premiums
    dev = ratios = None
    if groups.parity_counts is not None:
        dev = _parallel_words(groups.parity_counts, given)
    else:
        ratios = {name: premiums.get(name, 1.0) for name in given.groups}
    parity = ParityOptions(dev=dev, ratios=ratios, variant=groups.parity or "base")
    found = learn_parity_merges(given.groups, symbols, limits, parity, advance)
    shares = sorted((share, name) for name, share in found.compression.items())
    (least, worst), (most, best) = shares[0], shares[-1]
    remarks = [f"merges compress groups {least:.2f} times ({worst}) to {most:.2f} times ({best})"]
    if found.exhausted:
        remarks.append(f"no pairs were left for {', '.join(found.exhausted)}")
    return found.merges, remarks


def _parallel_words(folder: str, given: TrainingInput) -> dict[str, WordCounts]:
    """Return the words of the parallel texts, which decide which group is compressed worst."""
    parallel = open_counts(folder)
    if given.split.steps != parallel.split.steps:
        hint = "count both with the same --split"
        raise UserError(
            "the parallel texts were counted with another split", where=folder, hint=hint
        )
    return {name: parallel.groups[name] for name in given.groups if name in parallel.groups}


def _symbols(given: TrainingInput) -> Symbols:
    vocabulary = given.options.vocabulary
    if given.split.byte_level:
        for name in ("character_coverage", "limit_alphabet", "byte_fallback"):
            if getattr(vocabulary, name):
                raise UserError(
                    f"--{name.replace('_', '-')} works only with models over characters",
                    why=f"the split {given.split.name!r} represents texts as bytes",
                    hint="remove the option, or choose --split metaspace",
                )
        return byte_symbols()
    if vocabulary.whitespace_runs:
        why = f"words of the split {given.split.name!r} do not contain runs of spaces"
        raise UserError("--whitespace-runs works only with models over bytes", why=why)
    alphabet = Alphabet(limit=alphabet_limit(given), byte_fallback=vocabulary.byte_fallback)
    return character_symbols(given.words, alphabet)


def _require_room(size: int, num_symbols: int, given: TrainingInput) -> None:
    needed = num_symbols + len(given.specials)
    if size < needed:
        raise UserError(
            f"a vocabulary of {size:,} is too small",
            why=f"{num_symbols:,} symbols and {len(given.specials):,} special tokens come first",
            hint="choose a larger --vocabulary"
            + ("" if given.split.byte_level else ", or exclude rare characters: "
            "--character-coverage 0.9995 --byte-fallback"),
        )  # fmt: skip


def _vocabulary(merges: Merges, given: TrainingInput) -> Vocabulary:
    strings = merges.strings()
    pairs = [(strings[left], strings[right]) for left, right in merges.pairs.tolist()]
    unk = None if given.split.byte_level else given.specials.roles.get("unk")
    fallback = given.options.vocabulary.byte_fallback
    # Training drops characters without a token, but the tokenizer puts an unknown token in their
    # place, so the predicted number of tokens would be wrong.
    num_tokens = None if merges.num_dropped else merges.num_tokens()
    made = finished(
        given, strings, lambda vocab: bpe_model(vocab, pairs, unk, fallback), num_tokens
    )
    is_plain = len(merges) + len(merges.symbols) == len(strings)
    if not (is_plain and rank_pattern(given.split)):
        return made
    ids = given.specials.numbered(len(strings)).other_ids
    # tiktoken merges any two neighbours that spell a token, lowest id first. The tokens are the
    # same, because each token was learned when its text was in two parts.
    ranks = spelled_ranks(dict(zip(merges.texts(), ids, strict=True)))
    return replace(made, files={**made.files, "tokenizer.tiktoken": ranks})


def rank_pattern(split: Split) -> str:
    """Return the regular expression that gives tiktoken the same words; "" if there is none."""
    if split.normalizer is not None or not split.byte_level:
        return ""
    match pre_tokenizers(split.steps):
        case [{"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}]:
            return ENCODINGS["gpt2"].pattern
        case [
            {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated"},
            {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False},
        ]:
            return regex
    return ""


def _curve(merges: Merges, num_specials: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the tokens of the corpus at powers of two, and at the sizes of the vocabularies."""
    first = len(merges.symbols) + num_specials
    largest = max(sizes)
    powers = [SMALLEST_SIZE << i for i in range(24)]
    chosen = {first, *sizes, *(power for power in powers if first < power < largest)}
    return [(size, merges.cut(size - num_specials).num_tokens()) for size in sorted(chosen)]

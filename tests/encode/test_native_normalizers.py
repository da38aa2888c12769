"""native against the library with random normalizers, and characters that normalizers drop."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

import pytest
from pipeline_kit import (
    BERT_SPLIT,
    DIGITS,
    LOWERCASE,
    NFC,
    NFKC,
    NFKD,
    NMT,
    STRIP_ACCENTS,
    STRIP_RIGHT,
    WHITESPACE,
    WHITESPACE_SPLIT,
    bert_normalizer,
    custom_charsmap,
    metaspace,
    normalizers,
    precompiled,
    replace_regex,
)
from test_native_bpe import MARK_SPACES, PREPEND, byte_level, ends_of_words, steps
from test_native_unigram import JOINED, ONE_SPACE_AT_THE_END, engines, unigram
from test_native_wordpiece import SAMPLE, word_level, word_piece
from tokenizer_kit import BYTE_LEVEL, Json, added_token, documents, replace, sequence

from tokenmill.core.errors import EngineError
from tokenmill.core.records import TokenBatch
from tokenmill.encode.adversarial import texts_of_classes
from tokenmill.encode.engine import Reference
from tokenmill.encode.engines.native.gate import native_objection
from tokenmill.encode.exactness import check_engine, examine

TEXTS_A_TOKENIZER = 1_000
DROPPED = ("\x1c", "\x00", "\x7f", "\u200b", "\ufeff", "\u00ad", "\x85", "\u2028")
ALPHABET = [
    *(*DROPPED, "\u0301", "\u0323", "\u0327", "\u0338", "\u0303", "\u3099", "\u0e38", "\u0897"),
    *"aenoxzAÉé<=か’ﬁ각\u1100\u1161\n\t\r▁中½     ",
    *("x y", "s>", "<s"),
]
NFD: Json = {"type": "NFD"}
STRIP_BOTH: Json = {"type": "Strip", "strip_left": True, "strip_right": True}
NORMALIZERS: list[Callable[[random.Random], Json]] = [
    *(lambda _, step=step: step for step in (NFC, NFC, NFKC, NFKC, NFD, NFKD, NMT, NMT)),
    *(lambda _, step=step: step for step in (LOWERCASE, STRIP_ACCENTS, STRIP_RIGHT, STRIP_BOTH)),
    *(lambda _, step=step: step for step in (JOINED, ONE_SPACE_AT_THE_END, MARK_SPACES, PREPEND)),
    lambda chance: replace(chance.choice("’xé\u0301<ab"), chance.choice(["'", "x", "ab", ""])),
    lambda chance: replace(chance.choice(["ab", "’", "n"]), chance.choice(["\u0301", "n\u0303"])),
    lambda chance: replace_regex(chance.choice([" {2,}", r"\s+", "x"]), chance.choice(" ▁")),
    lambda chance: random_bert(chance),
    lambda _: precompiled(),
    lambda chance: precompiled(custom_charsmap(*chance.choice(CHARSMAPS))),
]
CHARSMAPS = [
    (("e\u0301", "E"), ("A", "b"), ("z", ""), ("\u0323", "")),
    (("\u200b", ""), ("\u00ad", ""), ("ﬁ", "fi"), ("\t", " ")),
    (("x", "n\u0303"), ("n\u0301", "m"), ("\x1c", " "), ("’", "'")),
]


def random_bert(chance: random.Random) -> Json:
    flags = ("clean_text", "handle_chinese_chars", "lowercase", "strip_accents")
    return bert_normalizer(**{flag: chance.random() < 0.5 for flag in flags})


def random_unigram(chance: random.Random) -> Json:
    splits_words = sequence(WHITESPACE_SPLIT, metaspace())
    before = chance.choice([metaspace(), metaspace("first"), splits_words])
    return unigram(None, before, chance.random() < 0.7)


def random_bpe(chance: random.Random) -> Json:
    before = chance.choice([None, metaspace(), metaspace("first"), metaspace(split=False)])
    return steps(None, before, fuse_unk=chance.random() < 0.5)


def random_byte_level(chance: random.Random) -> Json:
    return byte_level(None, chance.choice([BYTE_LEVEL, sequence(DIGITS, BYTE_LEVEL)]))


def random_words(_: random.Random) -> Json:
    return ends_of_words()


def random_word_piece(chance: random.Random) -> Json:
    tokens = ["[UNK]", *random_parts(chance), *(f"##{part}" for part in random_parts(chance))]
    return word_piece(vocab={token: i for i, token in enumerate(dict.fromkeys(tokens))})


def random_word_level(chance: random.Random) -> Json:
    before = chance.choice([WHITESPACE, WHITESPACE_SPLIT, BERT_SPLIT])
    return word_level(None, before, random_parts(chance))


def random_parts(chance: random.Random) -> list[str]:
    return [*SAMPLE, *("".join(chance.choices(SAMPLE, k=chance.randint(2, 3))) for _ in range(200))]


KINDS = [
    *(random_unigram, random_bpe, random_unigram, random_byte_level),
    *(random_unigram, random_words, random_word_piece, random_word_level),
]
"""Unigram most often: only there does native admit any order of several steps."""


def admitted(seed: int) -> Json:
    """A random tokenizer that native admits; `seed` also chooses its kind."""
    chance = random.Random(seed)
    make = KINDS[seed % len(KINDS)]
    tokenizer = make(chance)
    fewest = most = chance.randint(2, 4)
    if make is not random_unigram:
        fewest, most = (0, 1) if chance.random() < 0.3 else (1, 4)
    while True:
        size = chance.randint(fewest, most)
        found = [step(chance) for step in chance.choices(NORMALIZERS, k=size)]
        normalizer = normalizers(*found) if size > 1 else next(iter(found), None)
        changed = with_added_tokens(chance, {**tokenizer, "normalizer": normalizer})
        if not native_objection(changed, False):
            return changed


def with_added_tokens(chance: random.Random, tokenizer: Json) -> Json:
    """Sometimes with tokens that are matched before or after normalization."""
    if chance.random() < 0.6:
        return tokenizer
    size = len(tokenizer["model"]["vocab"])
    contents = chance.sample(["<s>", "é", "n\u0301", "x y", "ﬁ", "ab"], chance.randint(1, 3))
    more = [
        added_token(content, size + i, normalized=chance.random() < 0.5)
        for i, content in enumerate(contents)
    ]
    return {**tokenizer, "added_tokens": [*tokenizer["added_tokens"], *more]}


def different_texts(seed: int) -> list[str] | None:
    """Texts to which native and the library give different ids; None if native does not load."""
    tokenizer = admitted(seed)
    try:
        native, reference = engines(tokenizer)
    except EngineError:  # another engine encodes
        return None
    chance = random.Random(seed)
    texts = chance.sample(texts_of_classes(reference.normalize), TEXTS_A_TOKENIZER // 2)
    while len(texts) < TEXTS_A_TOKENIZER:
        texts.append("".join(chance.choices(ALPHABET, k=chance.randint(1, 16))))
    pairs = zip(documents(native.encode(texts)), documents(reference.encode(texts)), strict=True)
    return [text for text, (a, b) in zip(texts, pairs, strict=True) if a != b]


DROPPING = {
    "Nmt": NMT,
    "a table of characters": precompiled(custom_charsmap(("\u200b", ""), ("\x1c", ""))),
}


@pytest.mark.parametrize("dropping", DROPPING)
@pytest.mark.parametrize("composing", [NFC, NFKC], ids=["NFC", "NFKC"])
def test_a_dropped_character_does_not_keep_its_neighbours_apart(
    dropping: str, composing: Json
) -> None:
    native, reference = engines(unigram(normalizers(DROPPING[dropping], composing), metaspace()))
    pairs = [("n", "\u0301"), ("e\u0301", "\u0323"), ("か", "\u3099"), ("<", "\u0338")]
    texts = [f"{first}{c}{mark}" for first, mark in pairs for c in ("\x1c", "\u200b", "\x1c\u200b")]
    assert documents(native.encode(texts)) == documents(reference.encode(texts))


@pytest.mark.parametrize("dropping", DROPPING)
def test_a_text_that_begins_with_a_dropped_character(dropping: str) -> None:
    native, reference = engines(unigram(DROPPING[dropping], metaspace("first")))
    texts = ["\x1c", "\x1ca", "\x1c a", "\x1c\x1ca b", "a\x1c"]
    assert documents(native.encode(texts)) == documents(reference.encode(texts))


class KeepsApart:
    """native as it was: characters on both sides of a dropped one did not compose."""

    name, version = "native", "0"

    def __init__(self, normalize: Callable[[str], str], model: Reference) -> None:
        self._normalize, self._model = normalize, model

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        return self._model.encode([self._apart(text) for text in texts])

    def _apart(self, text: str) -> str:
        """Normalize what lies between dropped characters piece by piece."""
        pieces = groupby(text, key=lambda character: self._normalize(character) != "")
        return "".join(self._normalize("".join(piece)) for is_kept, piece in pieces if is_kept)


@pytest.mark.parametrize("dropping", DROPPING)
def test_the_exam_vetoes_an_engine_in_which_dropped_characters_keep_others_apart(
    dropping: str,
) -> None:
    steps = normalizers(DROPPING[dropping], NFKC)
    native, reference = engines(unigram(steps, metaspace()))
    _, model = engines(unigram(None, metaspace()))
    exam = examine(reference, [])
    check_engine(native, exam)
    with pytest.raises(EngineError, match="gives ids that differ") as caught:
        check_engine(KeepsApart(reference.normalize, model), exam)
    assert caught.value.where.startswith(r"text 'n\x")


def test_the_exam_has_each_kind_of_character_that_a_normalizer_drops() -> None:
    """A letter, a character of the kind, a mark."""
    table = precompiled(custom_charsmap(("\ua9c0", ""), ("z", "")))
    _, reference = engines(unigram(normalizers(table, NMT, NFC), metaspace()))
    triples = {text[1] for text in texts_of_classes(reference.normalize) if text[0] == "n"}
    assert {"z", "\ua9c0"} <= triples
    assert any(c.isascii() and not c.isprintable() for c in triples)
    assert triples & {"\u200b", "\u200e", "\ufeff"}


def test_random_normalizers() -> None:
    assert [different_texts(seed) for seed in range(len(KINDS))] == [[]] * len(KINDS)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_texts_with_random_normalizers() -> None:
    loaded: Counter[str] = Counter()
    seed = 1_000
    while TEXTS_A_TOKENIZER * loaded.total() < 1_000_000:
        found = different_texts(seed)
        assert not found, (seed, found)
        loaded[KINDS[seed % len(KINDS)].__name__] += found is not None
        seed += 1
    assert all(loaded[kind.__name__] > 100 for kind in KINDS)

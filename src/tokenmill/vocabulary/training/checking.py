"""Load a trained tokenizer with its reference library, and check it on the training words.

Byte-level merges are applied to all words by compiled code, and some words are compared with the
library. Other models are checked with the library. This gives the figures of `train.json`: tokens
of the corpus, unused tokens, and bytes in fragments of characters or unknown tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from tokenmill.core.errors import InternalError
from tokenmill.core.records import Advance, TokenBatch
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.model_alone import ModelAlone
from tokenmill.encode.token_bytes import Token, tokens_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import MARK as SPACE
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.training.output import LongToken, SizeEntry
from tokenmill.vocabulary.training.training_input import Vocabulary

BATCH_WORDS = 1 << 16
MAX_WORDS = 1 << 20
"""Number of the most frequent words to measure if only the library can encode."""
CHECKED_WORDS = 4_000
NUM_LONGEST = 8
ORIGIN = "the trained tokenizer"
SHOWN_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of a vocabulary on its training words."""

    entry: SizeEntry
    """What is stored in the record of the training."""
    occurrences: int
    """Occurrences of the measured words: all of them, or the most frequent ones."""
    bytes: int


def measure(vocabulary: Vocabulary, words: WordCounts, advance: Advance) -> Measured:
    """Encode the words with a vocabulary's file, and measure bytes, tokens and fallbacks.

    Raises:
        UserError: the library cannot load the file.
        EngineError: the ids of the library differ from those of the merges.
        InternalError: the number of tokens differs from the prediction.
    """
    advance("loading", 0, 1)
    subject = _subject(vocabulary, words)
    chosen = np.arange(len(words))
    if not subject.is_quick and len(words) > MAX_WORDS:
        chosen = np.sort(np.argsort(-words.counts, kind="stable")[:MAX_WORDS])
    frequencies = np.zeros(vocabulary.size, np.int64)
    for first in range(0, len(chosen), BATCH_WORDS):
        advance("checking", first, len(chosen))
        some = words.select(chosen[first : first + BATCH_WORDS])
        batch = subject.segment(some)
        np.add.at(frequencies, batch.ids, np.repeat(some.counts, batch.lengths))
    tokens = int(frequencies.sum())
    if vocabulary.num_tokens not in (None, tokens) and len(chosen) == len(words):
        raise InternalError(
            "the trained tokenizer does not encode its corpus as predicted",
            why=f"{tokens} tokens instead of {vocabulary.num_tokens}",
            hint="please report this with the options and the split",
        )
    num_bytes = int(np.diff(words.offsets)[chosen] @ words.counts[chosen])
    whole = np.array([0 if token.data is None else len(token.data) for token in subject.tokens])
    used = [count > 0 for count in frequencies.tolist()]
    entry = SizeEntry(
        vocabulary=vocabulary.size,
        tokens=tokens,
        unused=sum(not was for was, token in zip(used, subject.tokens, strict=True) if token.text),
        fallback_bytes=num_bytes - int(frequencies @ whole),
        longest=_longest(subject.tokens),
    )
    return Measured(entry, int(words.counts[chosen].sum()), num_bytes)


class _Spelled(NamedTuple):
    """The text of a token, spelled with ▁ like the counted words."""

    text: str | None
    """None for special tokens."""
    data: bytes | None
    """None for anything that is not a whole character."""


class _Subject(NamedTuple):
    """A tokenizer that encodes single words, without the steps before its model."""

    segment: Callable[[WordCounts], TokenBatch]
    """Returns the ids of every word."""
    tokens: list[_Spelled]
    """The tokens, in the order of their ids."""
    is_quick: bool


def _subject(vocabulary: Vocabulary, words: WordCounts) -> _Subject:
    if "tokenizer.model" in vocabulary.files:
        file = TokenizerFile("sentencepiece", vocabulary.files["tokenizer.model"], origin=ORIGIN)
        reference = load_reference(file, False)
        return _Subject(lambda some: reference.encode(_texts(some)), _tokens(file), False)
    file = TokenizerFile("huggingface", vocabulary.files["tokenizer.json"], origin=ORIGIN)
    model = ModelAlone(msgspec.json.decode(file.data), ORIGIN)
    model.check(words, CHECKED_WORDS)
    return _Subject(model.segment, _tokens(file), model.is_compiled)


def _texts(words: WordCounts) -> list[str]:
    """Return one text per word, without the leading space that SentencePiece's normalizer adds."""
    spelled = (words.word(i).decode() for i in range(len(words)))
    return [text.removeprefix(SPACE).replace(SPACE, " ") for text in spelled]


def _tokens(file: TokenizerFile) -> list[_Spelled]:
    by_id = tokens_of(file) or {}
    return [_spelled(by_id[i]) for i in range(len(by_id))]


def _spelled(token: Token) -> _Spelled:
    if not token.is_plain:
        return _Spelled(None, None)
    if token.is_fallback:
        return _Spelled(token.spelling, None)
    if token.is_fragment:
        return _Spelled(token.data.decode(errors="replace"), None)
    text = token.data.decode()
    if text == token.spelling.replace(SPACE, " "):
        text = token.spelling
    return _Spelled(text, text.encode())


def _longest(tokens: list[_Spelled]) -> list[LongToken]:
    texts = [token.text for token in tokens if token.text is not None and token.data is not None]
    texts = sorted(texts, key=lambda text: (-len(text), text))[:NUM_LONGEST]
    return [LongToken(characters=len(text), start=text[:SHOWN_CHARACTERS]) for text in texts]

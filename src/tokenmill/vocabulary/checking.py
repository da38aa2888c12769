"""A trained tokenizer.json, loaded by its reference and held against the words it was trained on.

Its best engine encodes the words, and the reference encodes some of them once more. From that come
the figures of `train.json`: tokens of the corpus, tokens that it never needs, and how much of it
falls back to parts of characters or to the unknown token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.engine import Engine
from tokenmill.encode.engine_ranking import REFERENCE, load_engine, rank_engines
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.errors import InternalError
from tokenmill.records import Advance
from tokenmill.vocabulary.learning import Vocabulary
from tokenmill.vocabulary.provenance import LongToken
from tokenmill.vocabulary.sentencepiece.model_file import (
    BYTE,
    NORMAL,
    USER_DEFINED,
    read_model,
)
from tokenmill.vocabulary.tokenizer_json import BYTE_TOKENS, CONTINUATION
from tokenmill.words.counts import WordCounts
from tokenmill.words.sentencepiece import SPACE

Json = dict[str, Any]

BATCH_WORDS = 1 << 16
MAX_WORDS = 1 << 20
"""Where only the library can encode, so many of the most frequent words are measured."""
SAMPLE_WORDS = 4_000
CACHE_BYTES = 100_000_000
NUM_LONGEST = 8
SHOWN_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """A vocabulary on the words that it was trained on."""

    occurrences: int
    """Of the words that were measured: all of them, or the most frequent ones."""
    bytes: int
    tokens: int
    unused: int
    fallback_bytes: int
    longest: list[LongToken]
    engine: str


def measure(vocabulary: Vocabulary, words: WordCounts, advance: Advance) -> Measured:
    """Encode the words with the file of a vocabulary; its bytes, tokens and fallbacks.

    Raises:
        EngineError: the engine gives other ids than the library.
        InternalError: another number of tokens was predicted.
    """
    subject = _subject(vocabulary)
    chosen = np.arange(len(words))
    if subject.name == REFERENCE and len(words) > MAX_WORDS:
        chosen = np.sort(np.argsort(-words.counts, kind="stable")[:MAX_WORDS])
    frequencies = np.zeros(vocabulary.size, np.int64)
    for first in range(0, len(chosen), BATCH_WORDS):
        advance("checking", first, len(chosen))
        some = chosen[first : first + BATCH_WORDS]
        batch = subject.engine.encode([subject.text(words, i) for i in some])
        np.add.at(frequencies, batch.ids, np.repeat(words.counts[some], np.diff(batch.offsets)))
    _compare_sample(subject, words)
    tokens = int(frequencies.sum())
    if vocabulary.num_tokens not in (None, tokens) and len(chosen) == len(words):
        raise InternalError(
            "the trained tokenizer does not encode its corpus as it was predicted",
            why=f"{tokens} tokens instead of {vocabulary.num_tokens}",
            hint="please report this with the options and the split",
        )
    num_bytes = int(np.diff(words.offsets)[chosen] @ words.counts[chosen])
    whole = np.array([0 if token.data is None else len(token.data) for token in subject.tokens])
    used = [count > 0 for count in frequencies.tolist()]
    return Measured(
        occurrences=int(words.counts[chosen].sum()),
        bytes=num_bytes,
        tokens=tokens,
        unused=sum(not was for was, token in zip(used, subject.tokens, strict=True) if token.text),
        fallback_bytes=num_bytes - int(frequencies @ whole),
        longest=_longest(subject.tokens),
        engine=subject.name,
    )


class _Token(NamedTuple):
    """What a token stands for."""

    text: str | None
    """None for special tokens."""
    data: bytes | None
    """None for all that is no whole character."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """A tokenizer that is given words one at a time, as its model alone sees them."""

    name: str
    engine: Engine
    reference: Engine
    tokens: list[_Token]
    """In the order of their ids."""
    of_sentencepiece: bool = False

    def text(self, words: WordCounts, index: int) -> str:
        """A text that has one word."""
        text = words.word(index).decode()
        # Its normalizer puts a space before every text.
        return text.removeprefix(SPACE).replace(SPACE, " ") if self.of_sentencepiece else text


def _subject(vocabulary: Vocabulary) -> _Subject:
    if "tokenizer.model" in vocabulary.files:
        data = vocabulary.files["tokenizer.model"]
        reference = load_reference(_file("sentencepiece", data), False)
        return _Subject(REFERENCE, reference, reference, _pieces(data), of_sentencepiece=True)
    tokenizer: Json = msgspec.json.decode(vocabulary.files["tokenizer.json"])
    alone = _file("huggingface", msgspec.json.encode(_model_alone(tokenizer)))
    reference = load_reference(alone, False)
    file = _file("huggingface", msgspec.json.encode(tokenizer))
    name = rank_engines(file, control_tokens=False).names[0]
    tokens = list(_tokens(tokenizer))
    if name not in ("fastokens", "gigatoken"):
        return _Subject(REFERENCE, reference, reference, tokens)
    return _Subject(name, load_engine(name, file, False, CACHE_BYTES), reference, tokens)


def _file(kind: str, data: bytes) -> TokenizerFile:
    return TokenizerFile(kind, data, origin="the trained tokenizer")


def _compare_sample(subject: _Subject, words: WordCounts) -> None:
    if subject.engine is subject.reference:
        return
    step = max(len(words) // SAMPLE_WORDS, 1)
    texts = [subject.text(words, i) for i in range(0, len(words), step)]
    expected = subject.reference.encode(texts)
    compare_tokens(subject.name, texts, subject.engine.encode(texts), expected)


def _model_alone(tokenizer: Json) -> Json:
    """The tokenizer for one word: no splits, no special tokens; bytes are spelled as before."""
    steps = (tokenizer["pre_tokenizer"] or {}).get("pretokenizers", [tokenizer["pre_tokenizer"]])
    bytes_only = [{**step, "use_regex": False} for step in steps if _is_byte_level(step)]
    return {
        **tokenizer,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": bytes_only[0] if bytes_only else None,
        "post_processor": None,
    }


def _is_byte_level(step: Json | None) -> bool:
    return step is not None and step["type"] == "ByteLevel"


def _tokens(tokenizer: Json) -> Iterator[_Token]:
    """What the tokens of a tokenizer.json stand for."""
    model = tokenizer["model"]
    if model["type"] == "Unigram":
        spellings = [piece for piece, _ in model["vocab"]]
    else:
        spellings = sorted(model["vocab"], key=model["vocab"].__getitem__)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    in_bytes = _is_byte_level(tokenizer["decoder"])
    table = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    fallback = set(BYTE_TOKENS) if model.get("byte_fallback") else set()
    prefix = CONTINUATION if model["type"] == "WordPiece" else ""
    for token in spellings:
        if token in special:
            yield _Token(None, None)
        elif token in fallback:
            yield _Token(token, None)
        elif in_bytes:
            yield _of_bytes(bytes(table[symbol] for symbol in token))
        else:
            text = token.removeprefix(prefix)
            yield _Token(text, text.encode())


def _of_bytes(data: bytes) -> _Token:
    try:
        return _Token(data.decode(), data)
    except UnicodeDecodeError:
        return _Token(data.decode(errors="replace"), None)


def _pieces(model: bytes) -> list[_Token]:
    """What the pieces of a SentencePiece model stand for."""
    return [
        _Token(piece.text, piece.text.encode())
        if piece.type in (NORMAL, USER_DEFINED)
        else _Token(piece.text if piece.type == BYTE else None, None)
        for piece in read_model(model).pieces
    ]


def _longest(tokens: list[_Token]) -> list[LongToken]:
    texts = [token.text for token in tokens if token.text is not None and token.data is not None]
    texts = sorted(texts, key=lambda text: (-len(text), text))[:NUM_LONGEST]
    return [LongToken(characters=len(text), start=text[:SHOWN_CHARACTERS]) for text in texts]

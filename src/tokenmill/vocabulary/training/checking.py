"""A trained tokenizer, loaded by its reference and held against the words it was trained on.

All words are encoded: by compiled code that applies the merges of the file in the order of their
ranks, where words are bytes, else by the reference; and some of them by the reference in any case.
From that come the figures of `train.json`: tokens of the corpus, tokens that it never needs, and
how much of it falls back to parts of characters or to the unknown token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.engine import Engine
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.subword.merges import MergeTable, merge_table, merge_words
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.errors import InternalError
from tokenmill.records import Advance, Int32Array, Int64Array, TokenBatch
from tokenmill.vocabulary.sentencepiece.model_file import (
    BYTE,
    NORMAL,
    USER_DEFINED,
    read_model,
)
from tokenmill.vocabulary.training.lesson import Vocabulary
from tokenmill.vocabulary.training.provenance import LongToken
from tokenmill.vocabulary.training.tokenizer_json import BYTE_TOKENS, CONTINUATION
from tokenmill.words.counts import WordCounts
from tokenmill.words.sentencepiece import SPACE

Json = dict[str, Any]

BATCH_WORDS = 1 << 16
MAX_WORDS = 1 << 20
"""Where only the library can encode, so many of the most frequent words are measured."""
SAMPLE_WORDS = 4_000
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


def measure(vocabulary: Vocabulary, words: WordCounts, advance: Advance) -> Measured:
    """Encode the words with the file of a vocabulary; its bytes, tokens and fallbacks.

    Raises:
        UserError: the library does not load the file.
        EngineError: the library gives other ids than the merges do.
        InternalError: another number of tokens was predicted.
    """
    subject = _subject(vocabulary)
    chosen = np.arange(len(words))
    if subject.merges is None and len(words) > MAX_WORDS:
        chosen = np.sort(np.argsort(-words.counts, kind="stable")[:MAX_WORDS])
    frequencies = np.zeros(vocabulary.size, np.int64)
    step = max(len(words) // SAMPLE_WORDS, 1)
    for first in range(0, len(chosen), BATCH_WORDS):
        advance("checking", first, len(chosen))
        some = chosen[first : first + BATCH_WORDS]
        batch = subject.encode(words, some)
        np.add.at(frequencies, batch.ids, np.repeat(words.counts[some], batch.lengths))
        if subject.merges is not None:
            _compare_sample(subject, words, some, batch, range(-first % step, len(some), step))
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
    )


class _Token(NamedTuple):
    """What a token stands for."""

    text: str | None
    """None for special tokens."""
    data: bytes | None
    """None for all that is no whole character."""


class _Merges(NamedTuple):
    """A BPE model over bytes, as its file has it."""

    symbols: Int32Array
    """Shape (256,): the id of each byte."""
    table: MergeTable


@dataclass(frozen=True, slots=True)
class _Subject:
    """A tokenizer that is given words one at a time, as its model alone sees them."""

    reference: Engine
    tokens: list[_Token]
    """In the order of their ids."""
    merges: _Merges | None = None
    """None where only the library can encode."""
    of_sentencepiece: bool = False

    def encode(self, words: WordCounts, chosen: Int64Array) -> TokenBatch:
        """The ids of some words, in the order of their numbers."""
        if self.merges is None:
            return self.reference.encode(self.texts(words, chosen))
        first, last = int(chosen[0]), int(chosen[-1])
        offsets = words.offsets[first : last + 2]
        symbols = self.merges.symbols[words.data[offsets[0] : offsets[-1]]]
        ids, edges = merge_words(
            symbols, offsets - offsets[0], self.merges.table, np.uint64(0), np.uint64(0)
        )
        return TokenBatch(ids.astype(np.uint32), edges)

    def texts(self, words: WordCounts, chosen: Int64Array) -> list[str]:
        """Texts that have one word each."""
        texts = [words.word(i).decode() for i in chosen]
        if self.of_sentencepiece:  # its normalizer puts a space before every text
            return [text.removeprefix(SPACE).replace(SPACE, " ") for text in texts]
        return texts


def _subject(vocabulary: Vocabulary) -> _Subject:
    if "tokenizer.model" in vocabulary.files:
        data = vocabulary.files["tokenizer.model"]
        reference = load_reference(_file("sentencepiece", data), False)
        return _Subject(reference, _pieces(data), of_sentencepiece=True)
    tokenizer: Json = msgspec.json.decode(vocabulary.files["tokenizer.json"])
    alone = _file("huggingface", msgspec.json.encode(_model_alone(tokenizer)))
    in_bytes = tokenizer["model"]["type"] == "BPE" and _is_byte_level(tokenizer["decoder"])
    return _Subject(
        load_reference(alone, False),
        list(_tokens(tokenizer)),
        _merges(tokenizer["model"]) if in_bytes else None,
    )


def _merges(model: Json) -> _Merges:
    symbols = np.array([model["vocab"][symbol] for symbol in byte_symbols()], np.int32)
    return _Merges(symbols, merge_table(model["vocab"], model["merges"]))


def _file(kind: str, data: bytes) -> TokenizerFile:
    return TokenizerFile(kind, data, origin="the trained tokenizer")


def _compare_sample(
    subject: _Subject, words: WordCounts, chosen: Int64Array, batch: TokenBatch, sample: range
) -> None:
    """Hold the merges against the library, in a sample of the words that `batch` has the ids of."""
    texts = subject.texts(words, chosen[sample])
    ids = [batch.ids[batch.offsets[i] : batch.offsets[i + 1]] for i in sample]
    found = TokenBatch(
        np.concatenate([np.empty(0, np.uint32), *ids]),
        offsets_from_lengths(list(map(len, ids))),
    )
    compare_tokens("the check", texts, found, subject.reference.encode(texts))


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
    table = str.maketrans({symbol: chr(byte) for byte, symbol in enumerate(byte_symbols())})
    fallback = set(BYTE_TOKENS) if model.get("byte_fallback") else set()
    prefix = CONTINUATION if model["type"] == "WordPiece" else ""
    for token in spellings:
        if token in special:
            yield _Token(None, None)
        elif token in fallback:
            yield _Token(token, None)
        elif in_bytes:
            yield _of_bytes(token.translate(table).encode("latin-1"))
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

"""A trained tokenizer.json, loaded by its reference and held against the words it was trained on.

Its best engine encodes the words, and the reference encodes some of them once more. From that come
the figures of `train.json`: tokens of the corpus, tokens that it never needs, and how much of it
falls back to parts of characters or to the unknown token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
from tokenmill.vocabulary.tokenizer_json import BYTE_TOKENS, CONTINUATION
from tokenmill.words.counts import WordCounts

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
    """Encode the words with a tokenizer.json; its bytes, tokens and fallbacks.

    Raises:
        InternalError: the library does not load it, gives other ids than its engine, or needs
            another number of tokens than was predicted.
    """
    tokenizer: Json = msgspec.json.decode(vocabulary.files["tokenizer.json"])
    name, engine = _engine(tokenizer)
    chosen = np.arange(len(words))
    if name == REFERENCE and len(words) > MAX_WORDS:
        chosen = np.sort(np.argsort(-words.counts, kind="stable")[:MAX_WORDS])
    frequencies = np.zeros(vocabulary.size, np.int64)
    for first in range(0, len(chosen), BATCH_WORDS):
        advance("checking", first, len(chosen))
        some = chosen[first : first + BATCH_WORDS]
        batch = engine.encode([words.word(i).decode() for i in some])
        np.add.at(frequencies, batch.ids, np.repeat(words.counts[some], np.diff(batch.offsets)))
    _check_sample(tokenizer, name, engine, words)
    lengths = np.diff(words.offsets)[chosen]
    num_bytes = int(lengths @ words.counts[chosen])
    tokens = int(frequencies.sum())
    if vocabulary.num_tokens not in (None, tokens) and len(chosen) == len(words):
        raise InternalError(
            "the trained tokenizer does not encode its corpus as it was predicted",
            why=f"{tokens} tokens instead of {vocabulary.num_tokens}",
            hint="please report this with the options and the split",
        )
    contents = list(_contents(tokenizer))
    whole = np.array([0 if content is None else len(content) for _, content in contents], np.int64)
    ordinary = np.array([i for i, (text, _) in enumerate(contents) if text is not None], np.int64)
    return Measured(
        occurrences=int(words.counts[chosen].sum()),
        bytes=num_bytes,
        tokens=tokens,
        unused=int(np.count_nonzero(frequencies[ordinary] == 0)),
        fallback_bytes=num_bytes - int(frequencies @ whole),
        longest=_longest(contents),
        engine=name,
    )


def _engine(tokenizer: Json) -> tuple[str, Engine]:
    """The best engine for words that are given one at a time, as the model alone sees them."""
    file = _file(tokenizer)
    name = rank_engines(file, control_tokens=False).names[0]
    if name in ("fastokens", "gigatoken"):
        return name, load_engine(name, file, False, CACHE_BYTES)
    return REFERENCE, load_reference(_file(_model_alone(tokenizer)), False)


def _check_sample(tokenizer: Json, name: str, engine: Engine, words: WordCounts) -> None:
    if name == REFERENCE:
        return
    step = max(len(words) // SAMPLE_WORDS, 1)
    texts = [words.word(i).decode() for i in range(0, len(words), step)]
    expected = load_reference(_file(_model_alone(tokenizer)), False).encode(texts)
    compare_tokens(name, texts, engine.encode(texts), expected)


def _file(tokenizer: Json) -> TokenizerFile:
    data = msgspec.json.encode(tokenizer)
    return TokenizerFile("huggingface", data, origin="the trained tokenizer")


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


def _contents(tokenizer: Json) -> Iterator[tuple[str | None, bytes | None]]:
    """Text and bytes of each id: no text for special tokens, no bytes for parts of characters."""
    model = tokenizer["model"]
    if model["type"] == "Unigram":
        tokens = [piece for piece, _ in model["vocab"]]
    else:
        tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    in_bytes = _is_byte_level(tokenizer["decoder"])
    table = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    fallback = set(BYTE_TOKENS) if model.get("byte_fallback") else set()
    for token in tokens:
        if token in special:
            yield None, None
        elif token in fallback:
            yield token, None
        elif in_bytes:
            content = bytes(table[symbol] for symbol in token)
            try:
                yield content.decode(), content
            except UnicodeDecodeError:
                yield content.decode(errors="replace"), None
        else:
            text = token.removeprefix(CONTINUATION) if model["type"] == "WordPiece" else token
            yield text, text.encode()


def _longest(contents: list[tuple[str | None, bytes | None]]) -> list[LongToken]:
    texts = [text for text, content in contents if text is not None and content is not None]
    texts = sorted(texts, key=lambda text: (-len(text), text))[:NUM_LONGEST]
    return [LongToken(characters=len(text), start=text[:SHOWN_CHARACTERS]) for text in texts]

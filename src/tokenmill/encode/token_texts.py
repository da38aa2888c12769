"""The text of every token as a table, for code that decodes without the reference.

In most tokenizers, the text of a document is the texts of its tokens, one after the other, where
the first token lacks its space. A table is made for the decoders listed here. It is compared with
the reference on all tokens at once, so a decoder that does more has no table.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.engine import Reference
from tokenmill.encode.token_bytes import Token, tokens_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import MARK
from tokenmill.kernels.texts import NO_TEXT, NO_TOKEN, SHORT, TokenTexts

Json = dict[str, Any]
Spelling = tuple[bytes, bytes]
"""The text of a token, and its text as the first one of a document."""
_SPACES: Json = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
_STRIP: Json = {"type": "Strip", "content": " ", "stop": 0}
TRIED_FIRST = 256
"""Tokens that are also compared as the first one of a document."""
CONTRACTIONS = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)
"""What the `cleanup` of a WordPiece decoder replaces in every token, in this order."""


def token_texts(file: TokenizerFile, reference: Reference) -> TokenTexts | None:
    """Return the text of every token; None if texts must be decoded by the reference.

    Special tokens have no text, except for the unknown token: characters that it replaced were not
    next to each other.
    """
    tokens, silent = tokens_of(file) or {}, special_ids(reference)
    for spell in _spellings(file) if tokens else ():
        spellings = {i: spell(token) for i, token in tokens.items() if i not in silent}
        whole = [i for i in sorted(spellings) if not tokens[i].is_fragment]
        with contextlib.suppress(Exception):  # a library that fails here is asked each time
            for i in whole:
                if tokens[i].is_added or i == reference.unk_id:  # a normalizer may have changed it
                    spellings[i] = _asked(reference, i)
            if _agree(reference, spellings, whole):
                return _table(reference, spellings, silent)
    return None


def special_ids(reference: Reference) -> set[int]:
    """The ids of tokens without text."""
    return {*reference.special_tokens.values()} - {reference.unk_id}


def _spellings(file: TokenizerFile) -> list[Callable[[Token], Spelling]]:
    """Return functions that may spell tokens as the decoder does."""
    if file.kind == "tiktoken":
        return [_as_it_is]
    if file.kind == "sentencepiece":  # its options decide
        return [
            lambda token: (token.data, _without_spaces(token, not token.is_fallback)),
            _as_it_is,
        ]
    steps = list(_steps(msgspec.json.decode(file.data).get("decoder")))
    types = [step.get("type") for step in steps]
    if not steps:
        return [lambda token: (f" {token.spelling}".encode(), token.spelling.encode())]
    if types == ["ByteLevel"]:
        return [_as_it_is]
    if types == ["Metaspace"]:
        drops = steps[0].get("prepend_scheme", "always") != "never"
        return [lambda token: (token.data, token.data.replace(b" ", b"") if drops else token.data)]
    if types == ["WordPiece"]:
        return [lambda token: _of_word_piece(token, **steps[0])]
    known = ({"type": "ByteFallback"}, {"type": "Fuse"}, *[_STRIP | {"start": n} for n in (0, 1)])
    if all(step in (*known, _SPACES) for step in steps):
        most = sum(step.get("start", 0) for step in steps)
        return [lambda token: (token.data, _without_spaces(token, most))]
    return []


def _steps(decoder: Json | None) -> Iterator[Json]:
    if decoder and decoder.get("type") == "Sequence":
        for step in decoder["decoders"]:
            yield from _steps(step)
    elif decoder:
        yield decoder


def _of_word_piece(token: Token, prefix: str, *, cleanup: bool, **_: object) -> Spelling:
    first, text = token.spelling, f" {token.spelling}"
    if token.spelling.startswith(prefix):
        text = token.spelling[len(prefix) :]
    if cleanup:
        for old, new in CONTRACTIONS:
            first, text = first.replace(old, new), text.replace(old, new)
    return text.encode(), first.encode()


def _as_it_is(token: Token) -> Spelling:
    return token.data, token.data


def _without_spaces(token: Token, most: int) -> bytes:
    num_spaces = len(token.data) - len(token.data.lstrip(b" "))
    return token.data[min(num_spaces, most) :]


def _asked(reference: Reference, token_id: int) -> Spelling:
    first = reference.decode([token_id])
    return reference.decode([token_id, token_id])[len(first) :].encode(), first.encode()


def _agree(reference: Reference, spellings: dict[int, Spelling], ids: Sequence[int]) -> bool:
    """Whether the reference spells these tokens in a row, and some of them alone, the same."""
    text = b"".join(spellings[i][k == 0] for k, i in enumerate(ids))
    some = random.Random(0).sample(ids, min(len(ids), TRIED_FIRST))  # noqa: S311
    return reference.decode(ids).encode() == text and all(
        reference.decode([i]).encode() == spellings[i][1] for i in some
    )


def _table(reference: Reference, spellings: dict[int, Spelling], silent: set[int]) -> TokenTexts:
    num_ids = reference.largest_id + 1
    sizes = np.full(2 * num_ids, NO_TOKEN, np.int32)
    texts = [b""] * (2 * num_ids)
    for i in silent:
        sizes[[i, num_ids + i]] = NO_TEXT
    for i, (text, first) in spellings.items():
        texts[i], texts[num_ids + i] = text, first
        sizes[[i, num_ids + i]] = len(text), len(first)
    short = b"".join(text[:SHORT].ljust(SHORT, b"\0") for text in texts)
    return TokenTexts(
        words=np.frombuffer(short, np.uint64).reshape(-1, 2),
        sizes=sizes,
        starts=offsets_from_lengths([len(text) for text in texts])[:-1],
        data=np.frombuffer(b"".join(texts), np.uint8),
    )

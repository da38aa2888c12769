"""The text of every token as a table, for code that decodes without the reference.

In most tokenizers, the text of a document is the texts of its tokens, one after the other, where
the first token may lack its space. Either the texts of tokens are their bytes, or the reference is
asked for each of them. The table is compared with the reference on all tokens at once, so a decoder
that looks at several tokens has no table.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

import numpy as np

from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.engine import Reference
from tokenmill.encode.token_bytes import tokens_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.kernels.texts import NO_TEXT, NO_TOKEN, SHORT, TokenTexts

Spelling = tuple[bytes, bytes]
"""The text of a token, and its text as the first one of a document."""
TRIED_FIRST = 256
"""Tokens that are also compared as the first one of a document."""


def token_texts(file: TokenizerFile, reference: Reference) -> TokenTexts | None:
    """Return the text of every token; None if texts must be decoded by the reference.

    Special tokens have no text, except for the unknown token: characters that it replaced were not
    next to each other.
    """
    tokens, silent = tokens_of(file), special_ids(reference)
    if tokens is None:
        return None
    spellings = {i: (token.data, token.data) for i, token in tokens.items() if i not in silent}
    whole = [i for i in sorted(spellings) if not tokens[i].is_fragment]
    with contextlib.suppress(Exception):  # a library that fails here is asked each time
        if not _agree(reference, spellings, whole):
            spellings |= _asked(reference, whole)
        if _agree(reference, spellings, whole):
            return _table(reference, spellings, silent)
    return None


def special_ids(reference: Reference) -> set[int]:
    """The ids of tokens without text."""
    return {*reference.special_tokens.values()} - {reference.unk_id}


def _asked(reference: Reference, ids: Sequence[int]) -> dict[int, Spelling]:
    """Return what the reference makes of each token alone, and after a letter or a digit."""
    firsts = {i: reference.decode([i]) for i in ids}
    before = next(i for i, first in firsts.items() if first.isalnum())
    size = len(firsts[before])
    return {
        i: (reference.decode([before, i])[size:].encode(), first.encode())
        for i, first in firsts.items()
    }


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

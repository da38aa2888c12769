"""BPE over characters, for SentencePiece-style vocabularies (Llama 2, Mistral, Gemma).

    text ─a space before it─▶ ─cuts─▶ chunks ─table─▶ ids
                                      new chunks ─symbols─▶ words ─merges─▶ ids

Added tokens are found first (`added_tokens.py`). If they have flags, or if a prefix is put before
the text after one, texts that may contain one go to the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.added_tokens import loaded_ids
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.locality import Json, matched_tokens, normalizers
from tokenmill.encode.engines.native.added_tokens import AddedTokens, longest_of
from tokenmill.encode.engines.native.bpe_cuts import bpe_cuts
from tokenmill.encode.engines.native.bpe_gate import (
    MARK,
    MARK_SPACES,
    PREPEND,
    is_plain,
    metaspaces_of,
    prefixes_texts,
)
from tokenmill.encode.engines.native.bpe_symbols import Alphabet, alphabet_of, symbols_of
from tokenmill.encode.engines.native.engine import NativeEngine
from tokenmill.encode.engines.routing import RoutedEngine
from tokenmill.encode.model_alone import merges_of
from tokenmill.encode.subword.merges import MergeTable, merge_table, merge_words
from tokenmill.encode.words.byte_strings import UInt8Array

BoolArray = npt.NDArray[np.bool_]

_NO_DROPOUT = np.uint64(0)


def load_bpe(
    tokenizer: Json, control_tokens: bool, load_reference: Callable[[], Engine], cache_bytes: int
) -> Engine:
    """Load the engine of a tokenizer that `bpe_objection` admits."""
    model = tokenizer["model"]
    metaspace = next(iter(metaspaces_of(tokenizer)), None)
    marks_spaces = metaspace is not None or MARK_SPACES in normalizers(tokenizer)
    splits = metaspace is not None and bool(metaspace.get("split", True))
    alphabet, merges = alphabet_of(model, marks_spaces), merges_of(model)
    cuts = bpe_cuts(merges, alphabet, marks_spaces, splits)
    bpe = CharacterBpe(alphabet, merge_table(model["vocab"], merges), splits)
    engine: Engine = NativeEngine(bpe, cuts, load_reference, cache_bytes)
    if prefixes_texts(tokenizer):
        engine = PrefixedTexts(engine, always=PREPEND in normalizers(tokenizer))
    tokens = matched_tokens(tokenizer, control_tokens)
    special = {t["content"] for t in tokens if t.get("special") and not control_tokens}
    if found := _found_tokens(tokenizer, tokens, special):
        engine = AddedTokens(engine, found, special)
    # Special tokens that are read as text only hide other tokens.
    if others := {token["content"] for token in tokens} - special - found.keys():
        contents = AddedContents([*others])
        return RoutedEngine(engine, contents, load_reference, in_ascii=True)
    return engine


def _found_tokens(tokenizer: Json, tokens: list[Json], as_text: set[str]) -> dict[str, int]:
    """Return the ids of the added tokens that need no reference.

    Raw tokens that are read as text hide others, whatever their flags.
    """
    if prefixes_texts(tokenizer):
        return {}
    left_out = {
        token["content"]
        for token in tokens
        if not is_plain(token) and (token.get("normalized") or token["content"] not in as_text)
    }
    contents = [token["content"] for token in tokens]
    ids = loaded_ids(tokenizer["model"]["vocab"], tokens)
    return {c: i for c, i in zip(contents, ids, strict=True) if c not in left_out}


class CharacterBpe:
    """Encodes chunks: converts them to symbols, and merges these. It leaves no chunk out."""

    def __init__(self, alphabet: Alphabet, merges: MergeTable, splits: bool) -> None:
        self._alphabet = alphabet
        self._merges = merges
        self._splits = splits

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """Return the ids of every chunk; none are left to the reference."""
        found = symbols_of(data, places, self._alphabet, self._splits)
        symbols, offsets, words_before = found
        ids, edges = merge_words(symbols, offsets, self._merges, _NO_DROPOUT, _NO_DROPOUT)
        tokens = TokenBatch(ids.astype(np.uint32), edges[words_before])
        return tokens, np.zeros(len(places), np.bool_)


class PrefixedTexts:
    """Puts a space before every text, or before those that do not begin with a space or a ▁."""

    def __init__(self, engine: Engine, always: bool) -> None:
        self.name = engine.name
        self.version = engine.version
        self._engine = engine
        self._begun = () if always else (" ", MARK)

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text, in order; empty texts have none."""
        begun = self._begun
        return self._engine.encode(
            [f" {text}" if text and not text.startswith(begun) else text for text in texts]
        )


class AddedContents:
    """Finds texts with added tokens, before or after spaces become ▁."""

    def __init__(self, contents: Sequence[str]) -> None:
        self._pattern = re.compile(longest_of({text.replace(" ", MARK) for text in contents}))

    def search(self, text: str, /) -> bool:
        """Whether a text contains any of the tokens."""
        return bool(self._pattern.search(text.replace(" ", MARK)))

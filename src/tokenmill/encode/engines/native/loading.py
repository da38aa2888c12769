"""Decide which tokenizer.json files the native engine encodes exactly, and load their models.

Every build asks for objections, but most use another engine. So compiled code is imported only when
a model is loaded (`numba` alone takes 0.2 s).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tokenmill.core.errors import EngineError
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.locality import Json
from tokenmill.encode.engines.native.bpe_gate import bpe_objection, is_bert, is_byte_level
from tokenmill.encode.engines.native.unigram_gate import unigram_objection
from tokenmill.encode.engines.native.wordpiece_gate import (
    word_level_objection,
    word_piece_objection,
)
from tokenmill.encode.tokenizer_json import read_tokenizer

if TYPE_CHECKING:
    from tokenmill.encode.engines.native.engine import NativeModel


def native_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why native cannot encode this tokenizer exactly; "" if it can."""
    match tokenizer["model"].get("type"):
        case "BPE":
            return bpe_objection(tokenizer, control_tokens)
        case "Unigram":
            return unigram_objection(tokenizer, control_tokens)
        case "WordPiece":
            return word_piece_objection(tokenizer, control_tokens)
        case "WordLevel":
            return word_level_objection(tokenizer, control_tokens)
        case kind:
            return f"model {kind}"


def load_native(
    tokenizer_json: bytes,
    control_tokens: bool,
    load_reference: Callable[[], Engine],
    cache_bytes: int,
) -> Engine:
    """Load the engine of a tokenizer that `native_objection` admits."""
    from tokenmill.encode.engines.chunks.cuts import make_cuts
    from tokenmill.encode.engines.native.engine import NativeEngine

    tokenizer = read_tokenizer(tokenizer_json)
    match tokenizer["model"]["type"]:
        case "BPE":
            return _load_bpe(tokenizer, control_tokens, load_reference, cache_bytes)
        case "Unigram":
            from tokenmill.encode.engines.native.unigram_loading import unigram_model

            model: NativeModel = unigram_model(tokenizer_json, tokenizer)
        case "WordPiece" | "WordLevel":
            from tokenmill.encode.engines.native.wordpiece import WordPiece

            model = WordPiece(tokenizer)
        case kind:
            raise EngineError(f"native cannot encode a model of type {kind}")
    cuts = make_cuts(tokenizer, control_tokens)
    return NativeEngine(model, cuts, load_reference, cache_bytes)


def _load_bpe(
    tokenizer: Json, control_tokens: bool, load_reference: Callable[[], Engine], cache_bytes: int
) -> Engine:
    if is_byte_level(tokenizer):
        from tokenmill.encode.engines.native.byte_bpe import load_byte_bpe as load
    elif is_bert(tokenizer):
        from tokenmill.encode.engines.native.word_bpe import load_word_bpe as load
    else:
        from tokenmill.encode.engines.native.bpe import load_bpe as load
    return load(tokenizer, control_tokens, load_reference, cache_bytes)

"""native: tokenmill's compiled code, for models that no fast library encodes exactly.

text ─cuts─▶ chunks ─table─▶ ids
new chunks ─model─▶ ids          normalizer, pre-tokenizer and model, compiled
chunks that the model leaves out ─reference─▶ ids
"""

from __future__ import annotations

from collections.abc import Callable

from tokenmill.core.errors import EngineError
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks import NativeEngine, NativeModel
from tokenmill.encode.engines.cuts import make_cuts
from tokenmill.encode.engines.native.byte_bpe import ByteBpe
from tokenmill.encode.engines.native.character_bpe import load_bpe
from tokenmill.encode.engines.native.gate import is_bert, is_byte_level
from tokenmill.encode.engines.native.unigram import unigram_model
from tokenmill.encode.engines.native.wordpiece import WordBpe, WordPiece
from tokenmill.encode.tokenizer_json import matched_contents, read_tokenizer


def load_native(
    tokenizer_json: bytes,
    control_tokens: bool,
    load_reference: Callable[[], Engine],
    cache_bytes: int,
) -> Engine:
    """Load the engine of a tokenizer that `native_objection` admits."""
    tokenizer = read_tokenizer(tokenizer_json)
    contents = matched_contents(tokenizer, control_tokens)
    match tokenizer["model"]["type"]:
        case "BPE" if is_byte_level(tokenizer):
            model: NativeModel = ByteBpe(tokenizer, contents)
        case "BPE" if is_bert(tokenizer):
            model = WordBpe(tokenizer, contents)
        case "BPE":
            return load_bpe(tokenizer, control_tokens, load_reference, cache_bytes)
        case "Unigram":
            model = unigram_model(tokenizer_json, tokenizer)
        case "WordPiece" | "WordLevel":
            model = WordPiece(tokenizer)
        case kind:
            raise EngineError(f"native cannot encode a model of type {kind}")
    cuts = make_cuts(tokenizer, control_tokens)
    return NativeEngine(model, cuts, load_reference, cache_bytes)

"""Load BPE models of SentencePiece for the native engine.

SentencePiece (`Model::SampleEncode` in bpe_model.cc) starts from characters and repeatedly joins
two neighbours that form a piece: the piece with the highest score first, then the leftmost. This
equals a list of merges in which all pairs that form pieces of one score share a rank.

User-defined symbols are matched first, and never joined with others. A text is never cut inside a
symbol, so after every cut, the same symbols are found as in the whole text. `bpe_cuts.py` finds all
other places to cut.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.cuts import Cuts
from tokenmill.encode.engines.native.bpe import CharacterBpe, PrefixedTexts
from tokenmill.encode.engines.native.bpe_cuts import bpe_cuts
from tokenmill.encode.engines.native.bpe_symbols import alphabet_of, whole_tokens
from tokenmill.encode.engines.native.engine import NativeEngine
from tokenmill.encode.engines.native.sentencepiece_gate import parts_of
from tokenmill.encode.subword.merges import MergeTable
from tokenmill.encode.subword.pair_table import NOTHING, pair_table
from tokenmill.encode.words.sentencepiece_model import (
    BYTE,
    NORMAL,
    USER_DEFINED,
    ModelFile,
    read_model,
)


def load_sentencepiece(
    data: bytes, load_reference: Callable[[], Engine], cache_bytes: int
) -> Engine:
    """Load the engine of a model that `sentencepiece_objection` admits."""
    model = read_model(data)
    bpe, cuts = _bpe(model)
    engine: Engine = NativeEngine(bpe, cuts, load_reference, cache_bytes)
    return PrefixedTexts(engine, always=True) if model.normalizer.add_prefix else engine


def _bpe(model: ModelFile) -> tuple[CharacterBpe, Cuts]:
    """Return the model, and where texts can be cut."""
    ids = _ids(model, NORMAL)
    symbols = {"vocab": ids, "unk_token": None, "byte_fallback": model.byte_fallback}
    alphabet = alphabet_of({**symbols, "vocab": ids | _ids(model, BYTE)}, marks_spaces=True)
    whole = _ids(model, USER_DEFINED)
    alphabet = alphabet._replace(whole=whole_tokens(whole))
    if not model.byte_fallback:
        alphabet = alphabet._replace(unknown=model.unk_id, fuses=True)
    known = {*ids}
    merges = [pair for text in ids for pair in parts_of(text, known)]
    inside = [pair for text in whole if " " not in text for pair in pairwise(text)]
    cuts = bpe_cuts(merges + inside, alphabet, marks_spaces=True, splits=False)
    return CharacterBpe(alphabet, _merge_table(model, ids, merges), splits=False), cuts


def _ids(model: ModelFile, kind: int) -> dict[str, int]:
    return {piece.text: i for i, piece in enumerate(model.pieces) if piece.type == kind}


def _merge_table(
    model: ModelFile, ids: dict[str, int], merges: list[tuple[str, str]]
) -> MergeTable:
    """Return the table of merges; those that form pieces of one score share a rank."""
    lefts, rights = (np.array([ids[pair[side]] for pair in merges], np.int32) for side in (0, 1))
    made = np.array([ids[left + right] for left, right in merges], np.int32)
    scores = np.array([piece.score for piece in model.pieces])
    levels, ranks = np.unique(-scores[made], return_inverse=True)
    results = np.full(len(levels), NOTHING, np.int32)
    results[ranks] = made
    shared = np.zeros(len(levels), np.bool_)
    shared[ranks[results[ranks] != made]] = True
    results[shared] = NOTHING
    tied = pair_table(np.where(shared[ranks], lefts, NOTHING).astype(np.int32), rights, made)
    return MergeTable(pair_table(lefts, rights, ranks.astype(np.int32)), results, tied)

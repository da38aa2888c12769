"""Load BPE models of SentencePiece for the native engine.

SentencePiece (`Model::SampleEncode` in bpe_model.cc) starts from characters and repeatedly joins
two neighbours that form a piece: the piece with the highest score first, then the leftmost. This
equals a list of merges in which all pairs that form a piece share its rank. Scores must differ, so
that ranks are unique. Where texts can be cut then follows from `bpe_cuts.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.cuts import Cuts
from tokenmill.encode.engines.native.bpe import AddedContents, CharacterBpe, PrefixedTexts
from tokenmill.encode.engines.native.bpe_cuts import bpe_cuts
from tokenmill.encode.engines.native.bpe_symbols import alphabet_of
from tokenmill.encode.engines.native.engine import NativeEngine
from tokenmill.encode.engines.native.sentencepiece_gate import parts_of, user_symbols
from tokenmill.encode.engines.routing import RoutedEngine
from tokenmill.encode.subword.merges import MergeTable
from tokenmill.encode.subword.pair_table import pair_table
from tokenmill.words.sentencepiece_model import BYTE, NORMAL, ModelFile, read_model


def load_sentencepiece(
    data: bytes, load_reference: Callable[[], Engine], cache_bytes: int
) -> Engine:
    """Load the engine of a model that `sentencepiece_objection` admits."""
    model = read_model(data)
    bpe, cuts = _bpe(model)
    engine: Engine = NativeEngine(bpe, cuts, load_reference, cache_bytes)
    if model.normalizer.add_prefix:
        engine = PrefixedTexts(engine, always=True)
    if symbols := user_symbols(model):
        contents = AddedContents(symbols)
        return RoutedEngine(engine, contents, load_reference, in_ascii=True)
    return engine


def _bpe(model: ModelFile) -> tuple[CharacterBpe, Cuts]:
    """Return the model, and where texts can be cut."""
    ids = {piece.text: i for i, piece in enumerate(model.pieces) if piece.type == NORMAL}
    symbols = {"vocab": ids, "unk_token": None, "byte_fallback": model.byte_fallback}
    named = {piece.text: i for i, piece in enumerate(model.pieces) if piece.type == BYTE}
    alphabet = alphabet_of({**symbols, "vocab": {**ids, **named}}, marks_spaces=True)
    if not model.byte_fallback:
        alphabet = alphabet._replace(unknown=model.unk_id, fuses=True)
    known = {*ids}
    made = {text: parts for text in ids if (parts := parts_of(text, known))}
    order = sorted(made, key=lambda text: -model.pieces[ids[text]].score)
    merges = [pair for text in order for pair in made[text]]
    ranks = np.repeat(np.arange(len(order), dtype=np.int32), [len(made[text]) for text in order])
    lefts, rights = (np.array([ids[pair[side]] for pair in merges], np.int32) for side in (0, 1))
    results = np.array([ids[text] for text in order], np.int32)
    table = MergeTable(pair_table(lefts, rights, ranks), results)
    cuts = bpe_cuts(merges, alphabet, marks_spaces=True, splits=False)
    return CharacterBpe(alphabet, table, splits=False), cuts

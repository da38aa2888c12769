"""BPE over characters, for vocabularies in the style of SentencePiece (Llama 2, Mistral, Gemma).

    text ─a space before it─▶ ─cuts─▶ chunks ─table─▶ ids
                                      new chunks ─symbols─▶ words ─merges─▶ ids

Added tokens are found first (`AddedTokens`). If they have flags, or if a prefix is put before the
text after one, texts that may contain one go to the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from tokenmill.core.records import BoolArray, Int32Array, Int64Array, TokenBatch, UInt8Array
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks import NativeEngine
from tokenmill.encode.engines.cuts import bpe_cuts
from tokenmill.encode.engines.native.gate import (
    MARK_SPACES,
    PREPEND,
    is_plain,
    metaspaces_of,
    parts_of,
    prefixes_texts,
)
from tokenmill.encode.engines.wrappers import (
    AddedTokens,
    PrefixedTexts,
    RoutedEngine,
    added_contents,
)
from tokenmill.encode.tokenizer_json import (
    BYTES,
    MARK,
    Json,
    loaded_ids,
    matched_tokens,
    merges_of,
    normalizers,
)
from tokenmill.encode.words.sentencepiece import BYTE, NORMAL, USER_DEFINED, ModelFile, read_model
from tokenmill.kernels.chunks import Cuts
from tokenmill.kernels.double_array import double_array
from tokenmill.kernels.merges import MergeTable, merge_table, merge_words
from tokenmill.kernels.pair_table import pair_table
from tokenmill.kernels.symbols import NOTHING, NUM_CODE_POINTS, Alphabet, symbols_of


def load_bpe(
    tokenizer: Json, control_tokens: bool, load_reference: Callable[[], Engine], cache_bytes: int
) -> Engine:
    """Load the engine of a tokenizer.json that `native_objection` admits."""
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
        return RoutedEngine(engine, added_contents(others), load_reference, in_ascii=True)
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
        ids, edges = merge_words(symbols, offsets, self._merges)
        tokens = TokenBatch(ids.astype(np.uint32), edges[words_before])
        return tokens, np.zeros(len(places), np.bool_)


def alphabet_of(model: Json, marks_spaces: bool) -> Alphabet:
    """Return the symbols of a BPE model; `marks_spaces` says whether spaces become ▁."""
    vocab: Mapping[str, int] = model["vocab"]
    symbols, last = _by_character(vocab, ""), _by_character(vocab, model.get("end_of_word_suffix"))
    if marks_spaces:
        symbols[ord(" ")], last[ord(" ")] = symbols[ord(MARK)], last[ord(MARK)]
    of_bytes = np.full(len(BYTES), NOTHING, np.int32)
    if model.get("byte_fallback"):
        of_bytes[:] = [vocab[name] for name in BYTES]
    unknown = vocab[model["unk_token"]] if model.get("unk_token") is not None else NOTHING
    fuses = bool(model.get("fuse_unk"))
    return Alphabet(symbols, last, of_bytes, unknown, fuses, whole_tokens({}))


def whole_tokens(ids: Mapping[str, int]) -> Int32Array:
    """Return the trie of tokens that are matched as a whole. Tokens with a space never match."""
    spelled = {
        text.replace(MARK, " ").encode(): number for text, number in ids.items() if " " not in text
    }
    return double_array(spelled)


def _by_character(vocab: Mapping[str, int], suffix: str | None) -> Int32Array:
    """Return the token of each character followed by a suffix, or -1."""
    symbols = np.full(NUM_CODE_POINTS, NOTHING, np.int32)
    size = 1 + len(suffix or "")
    found = [
        (ord(token[0]), number)
        for token, number in vocab.items()
        if len(token) == size and token.endswith(suffix or "")
    ]
    symbols[[character for character, _ in found]] = [number for _, number in found]
    return symbols


def load_sentencepiece(
    data: bytes, load_reference: Callable[[], Engine], cache_bytes: int
) -> Engine:
    """Load the engine of a SentencePiece model that `sentencepiece_objection` admits.

    SentencePiece (`Model::SampleEncode` in bpe_model.cc) starts from characters and repeatedly
    joins two neighbours that form a piece: the piece with the highest score first, then the
    leftmost. This equals a list of merges in which all pairs that form pieces of one score share a
    rank.

    User-defined symbols are matched first, and never joined with others. A text is never cut inside
    a symbol, so after every cut, the same symbols are found as in the whole text. `bpe_cuts` finds
    all other places to cut.
    """
    model = read_model(data)
    bpe, cuts = _sentencepiece_bpe(model)
    engine: Engine = NativeEngine(bpe, cuts, load_reference, cache_bytes)
    return PrefixedTexts(engine, always=True) if model.normalizer.add_prefix else engine


def _sentencepiece_bpe(model: ModelFile) -> tuple[CharacterBpe, Cuts]:
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
    return CharacterBpe(alphabet, _merges_by_score(model, ids, merges), splits=False), cuts


def _ids(model: ModelFile, kind: int) -> dict[str, int]:
    return {piece.text: i for i, piece in enumerate(model.pieces) if piece.type == kind}


def _merges_by_score(
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

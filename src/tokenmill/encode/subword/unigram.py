"""Sample encodings from the Unigram model of a tokenizer.json."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.subword.lattice import Fallback, FloatArray, Trie, sample
from tokenmill.encode.subword.pair_table import pair_table
from tokenmill.encode.subword.words import BYTES, WordSplitter

Json = dict[str, Any]


class UnigramSampler:
    """Samples encodings of a Unigram model."""

    def __init__(self, tokenizer: Json, alpha: float, origin: str) -> None:
        model = tokenizer["model"]
        pieces = [piece for piece, _ in model["vocab"]]
        ids = {piece: i for i, piece in enumerate(pieces)}  # the last of equal pieces wins
        added = [token["content"] for token in tokenizer.get("added_tokens") or []]
        _refuse_unfit(model, ids, added, origin)
        unknown = pieces[model["unk_id"]]
        alphabet = sorted(set("".join(pieces)))
        bytes_used = BYTES if model.get("byte_fallback") else []
        symbols = {name: i for i, name in enumerate([*alphabet, *bytes_used])}
        symbols.setdefault(unknown, len(symbols))
        symbol_model = {
            "type": "BPE",
            "vocab": symbols,
            "merges": [],
            "unk_token": unknown,
            "byte_fallback": bool(bytes_used),
        }
        self._splitter = WordSplitter(tokenizer, symbol_model)
        scores = np.array([score for _, score in model["vocab"]], np.float64)
        self._trie = _trie(pieces, ids, alpha * scores, symbols)
        become = {symbol: [ids.get(name, model["unk_id"])] for name, symbol in symbols.items()}
        if bytes_used:
            for name in alphabet:
                become[symbols[name]] = [ids[BYTES[byte]] for byte in name.encode()]
        following = len(pieces)
        for content in added:  # the library numbers new tokens itself, without gaps
            if content not in ids:
                ids[content] = following
                following += 1
            become.setdefault(self._splitter.symbol(content), [ids[content]])
        self._fallback = _fallback(become, model["unk_id"])

    def encode(self, text: str, key: np.uint64) -> Int32Array:
        """Sample the ids of a text, shape (num_tokens,)."""
        return sample(*self._splitter.split(text), self._trie, self._fallback, key)


def _refuse_unfit(model: Json, ids: dict[str, int], added: list[str], origin: str) -> None:
    why = ""
    if model.get("unk_id") is None:
        why = "its model has no unknown token"
    elif model.get("byte_fallback") and not ids.keys() >= set(BYTES):
        why = "its model falls back to bytes, but its vocabulary lacks some bytes"
    elif alone := [token for token in added if len(token) == 1 and token not in ids]:
        why = f"its added token {alone[0]!r} is a single character that the model does not know"
    if why:
        hint = "encode without sampling, or use another tokenizer"
        raise UserError("the tokenizer cannot be sampled exactly", where=origin, why=why, hint=hint)


def _trie(
    pieces: list[str], ids: dict[str, int], scores: FloatArray, symbols: dict[str, int]
) -> Trie:
    nodes: dict[tuple[int, int], int] = {}
    tokens: dict[int, int] = {}
    for piece in pieces:
        node = 0
        for character in piece:
            node = nodes.setdefault((node, symbols[character]), len(nodes) + 1)
        if piece:
            tokens[node] = ids[piece]
    edges = np.array(list(nodes), np.int32).reshape(-1, 2)
    children = pair_table(edges[:, 0], edges[:, 1], np.array(list(nodes.values()), np.int32))
    token_at = np.full(len(nodes) + 1, -1, np.int32)
    token_at[list(tokens)] = list(tokens.values())
    return Trie(children, token_at, np.where(token_at >= 0, scores[token_at], -math.inf))


def _fallback(become: dict[int, list[int]], unknown: int) -> Fallback:
    lists = [become.get(symbol, [unknown]) for symbol in range(max(become) + 1)]
    ids = np.array([i for each in lists for i in each], np.int32)
    return Fallback(ids, offsets_from_lengths([len(each) for each in lists]), unknown)

"""Sample the ids of texts, with BPE-dropout or from a Unigram model.

I. Provilkov, D. Emelianenko, E. Voita: BPE-Dropout: simple and effective subword regularization,
ACL 2020 (arXiv 1910.13267), algorithm 1: at every step, each possible merge of a word is dropped at
random, and of the others the one with the highest priority is applied, until all are dropped. The
`tokenizers` library's dropout differs in one point: it also draws for merges that are no longer
possible, and if one of them is kept, all merges dropped so far get another chance.

A **word** is a piece from the pre-tokenizer. For SentencePiece-style vocabularies (byte fallback)
and those without a pre-tokenizer, a whole document is one word, in which nearly every merge would
get another chance until it is kept. So their words are cut wherever no merge can ever cross.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import FloatArray, Int32Array, Int64Array, TokenBatch, UInt64Array
from tokenmill.encode.boundaries import batch_of, offsets_from_lengths
from tokenmill.encode.engine import call_library
from tokenmill.encode.engines.native.character_bpe import alphabet_of
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import BYTES, Json, Pair, merges_of, read_tokenizer
from tokenmill.kernels.lattice import Fallback, Trie, sample
from tokenmill.kernels.merges import cut_words, merge_table, merge_words
from tokenmill.kernels.pair_table import PairTable, pair_table
from tokenmill.kernels.permutation import threshold
from tokenmill.kernels.symbols import symbols_of

WORDS_ONLY = {"type": "Unigram", "unk_id": 0, "vocab": [["\uffff", 0.0]]}
UNSPELLED = (1 << 31) - 1
"""The symbol of a character that has neither a symbol nor byte symbols."""


class Words(NamedTuple):
    """The words of one text, as symbols."""

    symbols: Int32Array
    """Shape (num_symbols,)."""
    offsets: Int64Array
    """Shape (num_words + 1,): word i is `symbols[offsets[i]:offsets[i + 1]]`; none is empty."""


class WordSplitter:
    """Splits texts into words of symbols like a tokenizer; special tokens are ordinary text.

    The `tokenizers` library normalizes, pre-tokenizes and matches added tokens, with two copies of
    the tokenizer. The first copy has no vocabulary, so it returns the words; this is three times as
    fast. If a character of the words is `UNSPELLED`, the second copy is used. It has a BPE model
    without merges, so it returns the initial symbols, and the number of the word of each.

    `symbol_model` is that model.
    """

    def __init__(self, tokenizer: Json, symbol_model: Json) -> None:
        self._by_symbol = _copy(tokenizer, symbol_model)
        self._by_word = _copy(tokenizer, WORDS_ONLY)
        vocab = symbol_model["vocab"]
        falls_back = symbol_model.get("byte_fallback") and vocab.keys() >= set(BYTES)
        alone: Json = {"vocab": vocab, "byte_fallback": falls_back}
        if symbol_model.get("continuing_subword_prefix") or symbol_model.get("end_of_word_suffix"):
            alone = {"vocab": {}}
        self._alphabet = alphabet_of(alone, marks_spaces=False)._replace(unknown=UNSPELLED)
        added = [token["content"] for token in tokenizer.get("added_tokens") or []]
        numbers = [self._by_word.token_to_id(content) for content in added]
        self._added = np.full(max(numbers, default=0) + 1, -1, np.int32)
        self._added[numbers] = [self.symbol(content) for content in added]

    def symbol(self, token: str) -> int:
        """Return the symbol of a token, or -1."""
        found = self._by_symbol.token_to_id(token)
        return -1 if found is None else int(found)

    def split(self, text: str) -> Words:
        """Return the words of a text.

        Raises:
            EngineError: the library failed on the text.
        """
        return call_library(self._split, text)

    def _split(self, text: str) -> Words:
        encoding = self._by_word.encode(text, add_special_tokens=False)
        words = [word.encode() for word in encoding.tokens]
        added = self._added[np.fromiter(encoding.ids, np.int64, len(words))]
        is_added = added >= 0
        edges = offsets_from_lengths([len(word) for word in words])
        places = np.stack([edges[:-1], np.where(is_added, edges[:-1], edges[1:])], axis=1)
        data = np.frombuffer(b"".join(words), np.uint8)
        symbols, offsets, words_before = symbols_of(data, places, self._alphabet, False)
        if not (symbols == UNSPELLED).any():
            before = offsets[words_before]
            symbols = np.insert(symbols, before[:-1][is_added], added[is_added])
            return Words(symbols, before + offsets_from_lengths(is_added))
        encoding = self._by_symbol.encode(text, add_special_tokens=False)
        symbols = np.fromiter(encoding.ids, np.int32)
        numbers = np.fromiter(encoding.word_ids, np.int64)
        edges = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
        return Words(symbols, edges.astype(np.int64))


class _ModelSampler(Protocol):
    def encode(self, text: str, key: np.uint64) -> Int32Array: ...


class SubwordSampler:
    """Samples an encoding of each text, by BPE-dropout or from a Unigram model.

    The ids depend only on the text, its key and the tokenizer.

    Args:
        file: A tokenizer.json with a BPE or Unigram model.
        dropout: For BPE, the probability of skipping a merge, in [0, 1]. At 0 nothing is random,
            and the reference encodes.
        alpha: For Unigram, the sharpness of the distribution, 0 or more. At 0 all segmentations
            are equally likely; at infinity nothing is random, and the reference encodes.

    Raises:
        UserError: the tokenizer cannot be sampled, or the rate is for the other model or out of
            range.
    """

    def __init__(
        self, file: TokenizerFile, *, dropout: float | None = None, alpha: float | None = None
    ) -> None:
        tokenizer = _sampleable(file)
        _check_rates(tokenizer["model"]["type"], dropout, alpha, file.origin)
        self.dropout, self.alpha = dropout, alpha
        self.reference = HuggingFaceReference(file, control_tokens=False)
        self._sampler: _ModelSampler | None = None
        if dropout:
            self._sampler = MergeSampler(tokenizer, dropout)
        elif alpha is not None and alpha < math.inf:
            self._sampler = UnigramSampler(tokenizer, alpha, file.origin)

    def encode(self, texts: Sequence[str], keys: UInt64Array) -> TokenBatch:
        """Sample the ids of every text; `keys`, shape (n,), come from `draws.document_keys`.

        Raises:
            EngineError: the library that normalizes and splits the texts failed.
        """
        if self._sampler is None:
            return self.reference.encode(texts)
        pairs = zip(texts, keys, strict=True)
        return batch_of([self._sampler.encode(text, key) for text, key in pairs])


def rate_of(file: TokenizerFile) -> str:
    """Return the name of the sampling option for the tokenizer's model: "dropout" or "alpha".

    Raises:
        UserError: the tokenizer is not a tokenizer.json with a BPE or Unigram model.
    """
    return "dropout" if _sampleable(file)["model"]["type"] == "BPE" else "alpha"


def _sampleable(file: TokenizerFile) -> dict[str, Any]:
    """Return the tokenizer.json, if it can be sampled."""
    if not KINDS[file.kind].is_json:
        raise UserError(
            "the tokenizer cannot be sampled",
            where=file.origin,
            why=f"its kind is {file.kind}; sampling needs a tokenizer.json",
            hint="convert it to tokenizer.json, and check that its ids stay the same",
        )
    tokenizer = read_tokenizer(file.data)
    kind = tokenizer["model"]["type"]
    if kind not in ("BPE", "Unigram"):
        raise UserError(
            "the tokenizer cannot be sampled",
            where=file.origin,
            why=f"its model is {kind}; only BPE and Unigram can be sampled",
            hint="encode without sampling, or use a tokenizer with a BPE or Unigram model",
        )
    return tokenizer


def _check_rates(kind: str, dropout: float | None, alpha: float | None, origin: str) -> None:
    wanted, other = ("dropout", alpha) if kind == "BPE" else ("alpha", dropout)
    rate = dropout if kind == "BPE" else alpha
    if rate is None or other is not None:
        why = f"its model is {kind}, which supports only {wanted}"
        hint = f"use only {wanted}"
        raise UserError("wrong sampling option for the tokenizer", where=origin, why=why, hint=hint)
    largest = 1.0 if kind == "BPE" else math.inf
    if not 0 <= rate <= largest:
        why = f"got {rate}, must be in [0, {largest}]"
        raise UserError(f"{wanted} is out of range", why=why)


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


class MergeSampler:
    """Samples encodings of a BPE model."""

    def __init__(self, tokenizer: Json, dropout: float) -> None:
        model = tokenizer["model"]
        symbol_model = {**model, "type": "BPE", "merges": [], "ignore_merges": False}
        self._splitter = WordSplitter(tokenizer, symbol_model)
        self._dropout = threshold(dropout)
        merges = merges_of(model)
        prefix = model.get("continuing_subword_prefix") or ""
        self._merges = merge_table(model["vocab"], merges, prefix)
        self._crossable = _crossable(tokenizer, merges)

    def encode(self, text: str, key: np.uint64) -> Int32Array:
        """Sample the ids of a text, shape (num_tokens,)."""
        words = self._splitter.split(text)
        if self._crossable is not None:
            offsets = cut_words(words.symbols, words.offsets, self._crossable)
            words = Words(words.symbols, offsets)
        return merge_words(*words, self._merges, self._dropout, key)[0]


def _crossable(tokenizer: Json, merges: list[Pair]) -> PairTable | None:
    """Return the pairs of symbols that a merge can join; None if words must not be cut."""
    model = tokenizer["model"]
    vocab = model["vocab"]
    if not model.get("byte_fallback") and tokenizer.get("pre_tokenizer"):
        return None
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None
    # The spelling of these tokens differs from the text they encode.
    opaque = {*BYTES, model.get("unk_token")}
    if any(part in opaque for merge in merges for part in merge):
        return None
    lefts = np.array([vocab.get(left[-1], -1) for left, _ in merges], np.int32)
    rights = np.array([vocab.get(right[0], -1) for _, right in merges], np.int32)
    return pair_table(lefts, rights, np.zeros(len(merges), np.int32))


def _copy(tokenizer: Json, model: Json) -> Any:
    import tokenizers

    copy = {**tokenizer, "model": model}
    copy |= dict.fromkeys(("post_processor", "truncation", "padding"))
    made = tokenizers.Tokenizer.from_str(msgspec.json.encode(copy).decode())
    made.encode_special_tokens = True
    return made

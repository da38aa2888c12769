"""Convert a rank file to a tokenizer.json with the same ids, for engines that need one.

Every way to split a token into two other tokens is a merge.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.encode.encodings import byte_symbols, parse_ranks
from tokenmill.encode.published_encodings import Encoding
from tokenmill.encode.tokenizer_json import Json

_BYTE_LEVEL: Json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
MAX_MERGE_BYTES = 1 << 26
"""A token of n bytes can have n merges of n bytes each. Published files need 2 to 6 MB."""
_FREE = "\U0010ffff"
"""The prefix of placeholder tokens for unused ids. It spells no byte, so no text contains it."""


def outline_of_ranks(encoding: Encoding) -> Json | None:
    """Return the result of `ranks_to_json`, decoded, with only the 256 byte tokens."""
    if encoding.json_split is None:
        return None
    return _document(encoding, {symbol: i for i, symbol in enumerate(byte_symbols())}, [])


def ranks_to_json(data: bytes, encoding: Encoding, *, fill: bool = False) -> bytes | None:
    """Return an equivalent tokenizer.json, or None if there is none.

    There is none if tokenizer.json cannot express the split, or if the merges would take too much
    memory. Every way to split a token into two known ones becomes a merge; `ignore_merges` covers
    tokens that no merge reaches. `fill` adds placeholder tokens for unused ids, if there are few,
    and drops the empty token: fastokens requires consecutive ids and non-empty tokens.
    """
    if encoding.json_split is None:
        return None
    ranks = parse_ranks(data)
    tokens = sorted(ranks, key=ranks.__getitem__)
    spelled = _spelled(tokens)
    of_token = dict(zip(tokens, spelled, strict=True))
    vocab = {of_token[token]: rank for token, rank in ranks.items()}
    if fill:
        vocab = _filled(vocab)
    lefts, rights = merges_of(tokens)
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    if lengths[lefts].sum() + lengths[rights].sum() > MAX_MERGE_BYTES:
        return None
    pairs = zip(lefts.tolist(), rights.tolist(), strict=True)
    merges = [(spelled[left], spelled[right]) for left, right in pairs]
    return msgspec.json.encode(_document(encoding, vocab, merges))


def _filled(vocab: dict[str, int]) -> dict[str, int]:
    vocab = {token: i for token, i in vocab.items() if token}
    taken = set(vocab.values())
    if max(taken) < 2 * len(taken):
        vocab |= {f"{_FREE}{i}": i for i in range(max(taken)) if i not in taken}
    return vocab


def _spelled(tokens: list[bytes]) -> list[str]:
    """Spell tokens in the byte-level alphabet."""
    text = b"".join(tokens).decode("latin-1").translate(dict(enumerate(byte_symbols())))
    offsets = itertools.accumulate(map(len, tokens), initial=0)
    return [text[start:stop] for start, stop in itertools.pairwise(offsets)]


def _document(encoding: Encoding, vocab: dict[str, int], merges: list[tuple[str, str]]) -> Json:
    pre_tokenizer: Json = {**_BYTE_LEVEL, "use_regex": True}
    if encoding.json_split:
        pattern = {"Regex": encoding.json_split}
        split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        members = [split, {**_BYTE_LEVEL, "use_regex": False}]
        pre_tokenizer = {"type": "Sequence", "pretokenizers": members}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": True,
        "vocab": vocab,
        "merges": merges,
    }
    keys = ("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer")
    values: tuple[object, ...] = ("1.0", None, None, [], None, pre_tokenizer)
    head = dict(zip(keys, values, strict=True))
    decoder = {**_BYTE_LEVEL, "use_regex": True}
    return {**head, "post_processor": None, "decoder": decoder, "model": model}


def merges_of(tokens: Sequence[bytes]) -> tuple[Int32Array, Int32Array]:
    """Return every way to split a token into two others: the indexes of the left and right parts.

    Sorted by token, then left part, then right part.
    """
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    starts = np.cumsum(lengths) - lengths
    lefts = _parts(_longest_prefixes(tokens), lengths, starts, from_end=False)
    rights = _parts(
        _longest_prefixes([token[::-1] for token in tokens]), lengths, starts, from_end=True
    )
    found = np.flatnonzero((lefts >= 0) & (rights >= 0))
    wholes = np.repeat(np.arange(len(tokens), dtype=np.int32), lengths)[found]
    order = found[np.lexsort((lefts[found], wholes))]
    return lefts[order], rights[order]


def _longest_prefixes(tokens: Sequence[bytes]) -> Int32Array:
    """Return the longest other token that each token begins with, or -1; shape (num_tokens,)."""
    found = [-1] * len(tokens)
    prefixes: list[int] = []
    for place in sorted(range(len(tokens)), key=tokens.__getitem__):
        token = tokens[place]
        while prefixes and not token.startswith(tokens[prefixes[-1]]):
            prefixes.pop()
        if prefixes:
            found[place] = prefixes[-1]
        if token:
            prefixes.append(place)
    return np.array(found, np.int32)


def _parts(
    longest: Int32Array, lengths: Int64Array, starts: Int64Array, from_end: bool
) -> Int32Array:
    """Return, for each position inside each token, the token that spells the bytes before it.

    With `from_end`, return the token that spells the bytes after it. -1 if there is none. Shape
    (num_bytes,), over all tokens. `longest` is the result of `_longest_prefixes`; following it
    repeatedly visits all prefixes that are tokens.
    """
    parts = np.full(int(lengths.sum()), -1, np.int32)
    outer = np.flatnonzero(longest >= 0)
    inner = longest[outer]
    while len(outer):
        cuts = lengths[outer] - lengths[inner] if from_end else lengths[inner]
        parts[starts[outer] + cuts] = inner
        inner = longest[inner]
        outer, inner = outer[inner >= 0], inner[inner >= 0]
    return parts
